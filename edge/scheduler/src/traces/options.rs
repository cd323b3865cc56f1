//! The environment variables of OpenTelemetry that configure traces.
//!
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/> and
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>

use berth_client::otlp::CollectorOptions;
use std::path::PathBuf;
use std::time::Duration;

/// The path of traces below `OTEL_EXPORTER_OTLP_ENDPOINT`.
const TRACES_PATH: &str = "v1/traces";
/// The only supported protocol.
const PROTOCOL: &str = "http/json";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// The maximum wait of traces for a batch.
const DELAY_DEFAULT: Duration = Duration::from_secs(5);
/// The number of traces that wait at most; further ones are dropped.
const QUEUE_DEFAULT: usize = 2048;
/// The number of traces that are sent at once at most.
const BATCH_DEFAULT: usize = 512;

/// The options of the export.
#[derive(Debug, Clone)]
pub(crate) struct TraceOptions {
    pub(crate) collector: CollectorOptions,
    /// The attributes of the resource, `service.name` among them.
    pub(crate) resource: Vec<(String, String)>,
    /// The share of the pods whose attempts are exported, from 0 to 1.
    pub(crate) ratio: f64,
    pub(crate) is_compressed: bool,
    pub(crate) delay: Duration,
    pub(crate) queue_max: usize,
    pub(crate) batch_max: usize,
}

impl TraceOptions {
    /// Reads the variables with `get`. `None` unless an endpoint is set, and when the variables disable traces.
    ///
    /// # Errors
    /// Names the variable whose value cannot be used.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        // A variable for traces takes precedence over the variable for all signals.
        let of_exporter = |name: &str| {
            get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is_disabled =
            get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") if !is_disabled => {}
            None | Some("otlp" | "none") => return Ok(None),
            Some(other) => {
                return Err(format!(
                    "OTEL_TRACES_EXPORTER: {other:?} is not implemented; set otlp or none"
                ));
            }
        }
        let url = match get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(url) => url,
            None => match get("OTEL_EXPORTER_OTLP_ENDPOINT") {
                Some(url) => format!("{}/{TRACES_PATH}", url.trim_end_matches('/')),
                None => return Ok(None),
            },
        };
        if let Some(protocol) = of_exporter("PROTOCOL").filter(|protocol| protocol != PROTOCOL) {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL: {protocol:?} is not implemented; set {PROTOCOL} and the endpoint of OTLP \
                 over HTTP, usually port 4318"
            ));
        }
        let is_compressed = match of_exporter("COMPRESSION").as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                return Err(format!(
                    "OTEL_EXPORTER_OTLP_COMPRESSION: {other:?} is not implemented; set gzip or none"
                ));
            }
        };
        let headers = of_exporter("HEADERS").unwrap_or_default();
        let headers = pairs("OTEL_EXPORTER_OTLP_HEADERS", &headers)?;
        let attributes = get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut resource = pairs("OTEL_RESOURCE_ATTRIBUTES", &attributes)?;
        if let Some(name) = get("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.insert(0, ("service.name".to_owned(), name));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.insert(0, ("service.name".to_owned(), "berth-scheduler".to_owned()));
        }
        let millis = |name: &str, value: Option<String>, default: Duration| match value {
            None => Ok(default),
            Some(value) => match value.parse::<u64>() {
                Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
                _ => Err(format!("{name}: {value:?} is not a number of milliseconds")),
            },
        };
        let count = |name: &str, default: usize| match get(name) {
            None => Ok(default),
            Some(value) => match value.parse::<usize>() {
                Ok(count) if count > 0 => Ok(count),
                _ => Err(format!("{name}: {value:?} is not a positive number")),
            },
        };
        let file = |name: &str| of_exporter(name).map(PathBuf::from);
        let queue_max = count("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_DEFAULT)?;
        Ok(Some(Self {
            collector: CollectorOptions {
                url,
                headers,
                certificate: file("CERTIFICATE"),
                client_certificate: file("CLIENT_CERTIFICATE"),
                client_key: file("CLIENT_KEY"),
                timeout: millis(
                    "OTEL_EXPORTER_OTLP_TIMEOUT",
                    of_exporter("TIMEOUT"),
                    TIMEOUT_DEFAULT,
                )?,
                user_agent: format!("berth-scheduler/{}", env!("CARGO_PKG_VERSION")),
            },
            resource,
            ratio: ratio(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG"))?,
            is_compressed,
            delay: millis(
                "OTEL_BSP_SCHEDULE_DELAY",
                get("OTEL_BSP_SCHEDULE_DELAY"),
                DELAY_DEFAULT,
            )?,
            queue_max,
            batch_max: count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_DEFAULT)?.min(queue_max),
        }))
    }
}

/// Reads `key=value,key=value`. Values may be percent-encoded.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts
        .map(|part| {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{variable}: {part:?} is not of the form key=value"))?;
            let value = percent_encoding::percent_decode_str(value.trim())
                .decode_utf8()
                .map_err(|_| format!("{variable}: the value of {key:?} is not UTF-8"))?;
            Ok((key.trim().to_owned(), value.into_owned()))
        })
        .collect()
}

/// The share of traces that a sampler exports. Attempts have no parent, so a sampler that follows the parent uses its
/// root sampler.
fn ratio(sampler: Option<String>, argument: Option<String>) -> Result<f64, String> {
    let sampler = sampler.unwrap_or_else(|| "parentbased_always_on".to_owned());
    match sampler.trim_start_matches("parentbased_") {
        "always_on" => Ok(1.0),
        "always_off" => Ok(0.0),
        "traceidratio" => {
            let argument = argument.unwrap_or_else(|| "1".to_owned());
            let ratio = argument.parse().ok();
            ratio
                .filter(|ratio| (0.0..=1.0).contains(ratio))
                .ok_or_else(|| {
                    format!("OTEL_TRACES_SAMPLER_ARG: {argument:?} is not a number from 0 to 1")
                })
        }
        _ => Err(format!(
            "OTEL_TRACES_SAMPLER: {sampler:?} is not implemented; set always_on, always_off or traceidratio"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<TraceOptions>, String> {
        TraceOptions::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn traces_are_off_unless_an_endpoint_is_set() {
        for off in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "true")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
            &[("OTEL_SERVICE_NAME", "s")],
        ] {
            assert!(read(off).expect("valid").is_none(), "{off:?}");
        }
        let options = read(&[ENDPOINT]).expect("valid").expect("on");
        assert_eq!(options.collector.url, "http://collector:4318/v1/traces");
        assert_eq!(options.ratio, 1.0);
        let service = ("service.name".to_owned(), "berth-scheduler".to_owned());
        assert_eq!(options.resource, [service]);
    }

    #[test]
    fn variables_of_traces_take_precedence() {
        let options = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t.example/x"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            (
                "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                "x-tenant=blue%20one, b=2",
            ),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=s,k8s.cluster.name=c",
            ),
            ("OTEL_SERVICE_NAME", "mine"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ]);
        let options = options.expect("valid").expect("on");
        assert_eq!(options.collector.url, "https://t.example/x");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            options.collector.headers,
            [pair("x-tenant", "blue one"), pair("b", "2")]
        );
        assert_eq!(options.collector.timeout, Duration::from_millis(2500));
        assert!(options.is_compressed);
        assert_eq!(options.ratio, 0.25);
        assert_eq!(
            options.resource,
            [pair("service.name", "mine"), pair("k8s.cluster.name", "c")]
        );
        assert_eq!((options.queue_max, options.batch_max), (100, 100));
    }

    #[test]
    fn values_that_cannot_be_used_are_refused_with_the_name_of_the_variable() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "novalue"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ] {
            let error = read(&[ENDPOINT, (name, value)]).expect_err(name);
            assert!(error.starts_with(name), "{error}");
        }
        let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
        let error = read(&[ENDPOINT, sampler, ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        let error = error.expect_err("more than all");
        assert!(error.starts_with("OTEL_TRACES_SAMPLER_ARG"), "{error}");
    }
}
