//! The report as one HTML page without other files and network access: the JSON of the report, and a script that draws
//! it.

use super::Report;

const CSS: &str = include_str!("page/page.css");
const HTML: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");

/// The page of a report, without the rows of pods.
///
/// # Errors
/// The report has a number that JSON does not support, which is a defect.
pub fn page(report: &Report) -> Result<String, serde_json::Error> {
    let mut report = report.clone();
    for run in &mut report.runs {
        run.pods.clear();
    }
    // A text in the trace must not end the element.
    let data = serde_json::to_string(&report)?.replace('<', "\\u003c");
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Berth simulation</title>\n\
         <style>\n{CSS}</style>\n</head>\n<body>\n{HTML}\
         <script type=\"application/json\" id=\"report\">{data}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Run;

    #[test]
    fn a_page_needs_no_other_file_and_texts_stay_texts() {
        let run = Run {
            config: "</script><script>alert(1)</script>".to_owned(),
            ..Run::default()
        };
        let page = page(&Report::new(vec![run])).expect("a page");
        assert!(!page.contains("alert(1)</script>"), "{page}");
        for loads in ["src=", "href=", "url(", "@import", "fetch(", "http:"] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(loads), "the page loads something: {loads}");
        }
    }
}
