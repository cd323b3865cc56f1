# The formula for Homebrew. The release workflow replaces the version and the checksums, and publishes the result:
#   brew install --formula ./berth.rb
class Berth < Formula
  desc "Kubernetes scheduler with a control plane of its own"
  homepage "https://github.com/berth-dev/berth"
  version "VERSION_NUMBER"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/berth-dev/berth/releases/download/VERSION/berth-VERSION-darwin-arm64.tar.gz"
      sha256 "SHA256_darwin-arm64"
    end
    on_intel do
      url "https://github.com/berth-dev/berth/releases/download/VERSION/berth-VERSION-darwin-amd64.tar.gz"
      sha256 "SHA256_darwin-amd64"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/berth-dev/berth/releases/download/VERSION/berth-VERSION-linux-arm64.tar.gz"
      sha256 "SHA256_linux-arm64"
    end
    on_intel do
      url "https://github.com/berth-dev/berth/releases/download/VERSION/berth-VERSION-linux-amd64.tar.gz"
      sha256 "SHA256_linux-amd64"
    end
  end

  def install
    bin.install "berth"
    bin.install_symlink "berth" => "kubectl-berth"
    generate_completions_from_executable(bin/"berth", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/berth version --client")
  end
end
