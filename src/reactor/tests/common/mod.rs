//! What the reactor's tests share: each runs on both engines.
#![allow(dead_code, reason = "each test binary uses its part")]

use thalweg_reactor::{EngineChoice, EngineKind, Runtime, RuntimeOptions};

pub fn runtime(engine: EngineChoice) -> Runtime {
    let options = RuntimeOptions {
        engine,
        ring_entries: 64,
        ..RuntimeOptions::default()
    };
    Runtime::new(options).expect("this machine allows io_uring")
}

/// Runs `test` on a thread of its own with each engine.
pub fn on_both_engines(test: fn(&Runtime)) {
    for engine in [EngineChoice::Ring, EngineChoice::Plain] {
        println!("engine: {engine:?}");
        std::thread::spawn(move || {
            let runtime = runtime(engine);
            let got = runtime.engine().kind;
            assert_eq!(got == EngineKind::Ring, engine == EngineChoice::Ring);
            test(&runtime);
        })
        .join()
        .expect("the test passes on this engine");
    }
}
