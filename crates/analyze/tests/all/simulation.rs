//! Compares the formulas with a discrete-event simulation by ciw (PyPI), if installed.

use statistics::queue;
use std::io::Write;
use std::path::Path;
use std::process::Command;

fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED simulation: {why}");
}

#[test]
fn single_stations_lie_within_the_simulations_interval() {
    let python = std::env::var("STRAINGAUGE_CIW_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_ciw = Command::new(&python).args(["-c", "import ciw"]).output();
    match has_ciw {
        Ok(output) if output.status.success() => {}
        Ok(_) => {
            return skipped("python3 has no module ciw (pip install ciw; STRAINGAUGE_CIW_PYTHON names another python)");
        }
        Err(error) => return skipped(&format!("{python} does not start: {error}")),
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("all/simulation.py");
    let output = Command::new(&python).arg(script).arg("1500").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, rate, cv_squared, servers) in [
        ("M/M/1 at 0.7", 0.7, 1.0, 1),
        ("M/D/1 at 0.7", 0.7, 0.0, 1),
        ("M/G/1 at 0.6, c2 4", 0.6, 4.0, 1),
        ("M/M/4 at 0.8", 3.2, 1.0, 4),
    ] {
        let (mean, error) = (found[name]["mean"].as_f64().unwrap(), found[name]["error"].as_f64().unwrap());
        let modelled = queue::general_service(rate, 1.0, cv_squared, servers).unwrap().response_s;
        // Student's t for 99.9 % with 11 degrees of freedom; the seeds are fixed.
        println!("{name}: simulated {mean:.4} +- {error:.4}, modelled {modelled:.4}");
        assert!((modelled - mean).abs() < 4.44 * error, "{name}: simulated {mean} +- {error}, modelled {modelled}");
    }
}
