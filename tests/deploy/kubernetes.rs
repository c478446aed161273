//! The manifests of `deploy/kubernetes/` and the chart of `deploy/helm/`: built by kustomize and
//! Helm, checked against the schemas of Kubernetes. No cluster runs them here.

use std::path::Path;

use serde_json::Value;

use super::samples::assert_valid;
use super::tools::{documents, result, run, tool, validated};
use super::{ROOT, file};

const OVERLAYS: [&str; 2] = ["single", "replicas"];
const CHART: &str = "deploy/helm/weir";
/// The chart's values for replicas, and all that is off by default.
const REPLICAS: &str = "deploy/helm/weir/ci/replicas.yaml";
/// Kinds of the Prometheus Operator, which has schemas of its own.
const OPERATOR_KINDS: [&str; 2] = ["PodMonitor", "PrometheusRule"];

fn overlay(name: &str) -> String {
    run(tool("kubectl").args(["kustomize", &format!("deploy/kubernetes/overlays/{name}")]))
}

fn template(arguments: &[&str]) -> String {
    run(tool("helm").args(["template", "weir", CHART]).args(arguments))
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// Rules that hold for each way of deploying to Kubernetes.
#[track_caller]
fn assert_deployable(manifests: &str) {
    let documents = documents(manifests);
    let deployment = &of_kind(&documents, "Deployment")["spec"];
    let pod = &deployment["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let labels = &deployment["template"]["metadata"]["labels"];
    let selected = |selector: &Value| {
        let pairs = selector.as_object().expect("a selector");
        pairs.iter().all(|(key, value)| labels[key] == *value)
    };
    assert!(selected(&deployment["selector"]["matchLabels"]));
    assert!(selected(&of_kind(&documents, "Service")["spec"]["selector"]));
    let config = of_kind(&documents, "ConfigMap");
    let volumes = pod["volumes"].as_array().expect("volumes");
    let mounted =
        volumes.iter().any(|volume| volume["configMap"]["name"] == config["metadata"]["name"]);
    assert!(mounted, "the pod does not have the config");
    for mount in container["volumeMounts"].as_array().expect("mounts") {
        let exists = volumes.iter().any(|volume| volume["name"] == mount["name"]);
        assert!(exists, "no volume {}", mount["name"]);
    }
    let text = config["data"]["weir.toml"].as_str().expect("a config");
    let effective = assert_valid(text);
    let seconds = |key: &str| {
        let value = effective["listen"][key].as_str().unwrap_or("0s").trim_end_matches('s');
        value.parse::<u64>().unwrap_or_else(|_| panic!("listen.{key} in seconds: {value}"))
    };
    let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("a grace period");
    assert!(grace >= seconds("drain") + seconds("drain_delay") + 10, "a grace period of {grace} s");
    let replicas = deployment["replicas"].as_u64().expect("replicas");
    if replicas == 1 {
        assert_eq!(deployment["strategy"]["type"], "Recreate");
    } else {
        let most = effective["state"]["replicas_max"].as_u64().expect("replicas_max");
        assert!(most >= 2 * replicas, "a rollout of {replicas} has more than {most}");
        of_kind(&documents, "PodDisruptionBudget");
    }
}

#[test]
fn overlays_fit_the_schemas_of_kubernetes() {
    for name in OVERLAYS {
        let manifests = overlay(name);
        assert_eq!(validated(&manifests), Vec::<String>::new());
        assert_deployable(&manifests);
    }
}

#[test]
fn the_chart_fits_the_schemas_of_kubernetes() {
    run(tool("helm").args(["lint", "--strict", CHART]));
    let manifests = template(&[]);
    assert_eq!(validated(&manifests), Vec::<String>::new());
    assert_deployable(&manifests);
}

#[test]
fn the_chart_makes_replicas_with_monitoring() {
    run(tool("helm").args(["lint", "--strict", CHART, "--values", REPLICAS]));
    let manifests = template(&["--values", REPLICAS]);
    assert_eq!(validated(&manifests), OPERATOR_KINDS);
    assert_deployable(&manifests);
    let documents = documents(&manifests);
    let rules = of_kind(&documents, "PrometheusRule")["spec"]["groups"].clone();
    let original = super::tools::documents(&file("deploy/prometheus/weir.rules.yaml"));
    assert_eq!(rules, original[0]["groups"], "the alerts of the chart are the alerts");
    let monitor = &of_kind(&documents, "PodMonitor")["spec"];
    let labels = &of_kind(&documents, "Deployment")["spec"]["template"]["metadata"]["labels"];
    let job = &labels[monitor["jobLabel"].as_str().expect("a label")];
    assert_eq!(job, "weir", "the alerts expect this job");
}

#[test]
fn values_that_the_chart_does_not_know_are_refused() {
    for (value, reason) in [
        ("replica=2", "additional properties 'replica'"),
        ("replicas=0", "replicas"),
        ("service.type=Local", "service"),
        ("replicas=2", "needs `[state] redis`"),
    ] {
        let (is_done, text) =
            result(tool("helm").args(["template", "weir", CHART, "--set", value]));
        assert!(!is_done && text.contains(reason), "{value}: {text}");
    }
}

#[test]
fn an_unknown_key_of_a_manifest_is_found() {
    let manifests = overlay("single").replace("automountServiceAccountToken:", "automount:");
    let found = std::panic::catch_unwind(|| validated(&manifests));
    assert!(found.is_err(), "the schemas accept anything");
}

#[test]
fn each_file_of_the_manifests_is_used() {
    let folder = Path::new(ROOT).join("deploy/kubernetes");
    for part in ["base", "overlays/single", "overlays/replicas"] {
        let kustomization = file(&format!("deploy/kubernetes/{part}/kustomization.yaml"));
        for entry in std::fs::read_dir(folder.join(part)).expect("a folder") {
            let name = entry.expect("a file").file_name().to_string_lossy().into_owned();
            let is_used = name == "kustomization.yaml" || kustomization.contains(&name);
            assert!(is_used, "{part}/{name} is not used");
        }
    }
}

#[test]
fn images_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = file("deploy/helm/weir/Chart.yaml");
    assert!(chart.contains(&format!("appVersion: {version}\n")), "{chart}");
    let image = format!("image: registry.example.com/weir:{version}\n");
    for name in OVERLAYS {
        assert!(overlay(name).contains(&image), "{name} has another image than {image}");
    }
}
