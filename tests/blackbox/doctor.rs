//! `thalweg doctor` on the machine that runs the tests, whatever that is.

use crate::tool::thalweg;

#[test]
fn the_doctor_tells_people_and_machines_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("not/yet");
    let data = data.to_str().expect("UTF-8");
    let dirs = format!("log.dirs={data},{data}-too");
    let output = thalweg(&[
        "doctor",
        "--set",
        &dirs,
        "--json",
        "--probe",
        "--seconds",
        "1",
    ]);
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    let json: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let findings = json["findings"].as_array().expect("a list");
    let of = |level: &str| findings.iter().filter(|f| f["level"] == level).count();
    // A temporary folder may lie in memory: then that is a problem, and the end says so.
    let is_problem = of("problem") > 0;
    assert_eq!(output.status.code(), Some(i32::from(is_problem)), "{told}");
    for name in ["kernel", "memory", "open-files", "file-system", "io-uring"] {
        assert!(findings.iter().any(|f| f["name"] == name), "{name}: {told}");
    }
    for finding in findings {
        let is_ok = finding["level"] == "ok";
        assert_eq!(finding["consequence"].is_null(), is_ok, "{finding}");
    }
    let probes = json["probes"].as_array().expect("a list");
    assert_eq!(probes.len(), 2, "{told}");
    for (probe, name) in probes.iter().zip([data, &format!("{data}-too")]) {
        assert!(probe["write_mb_per_second"].as_f64() > Some(0.0));
        assert_eq!(probe["data_dir"], name);
    }
    let first = &probes[0]["write_mb_per_second"];
    assert_eq!(&json["probe"]["write_mb_per_second"], first);
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count(),
        0
    );

    let text = thalweg(&["doctor", "--data-dir", data]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    for finding in findings {
        let name = finding["name"].as_str().expect("a name");
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn it_refuses_what_it_can_not_look_at() {
    let missing = thalweg(&["doctor", "--config", "/nonexistent/server.properties"]);
    assert_eq!(missing.status.code(), Some(4));
    assert_eq!(
        thalweg(&["doctor", "--seconds", "3"]).status.code(),
        Some(2)
    );
}
