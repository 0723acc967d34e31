//! The log levels in force, and the way to change them.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use thalweg_metadata::loggers::{BROKER_LOGGER, LogLevel, LogLevels};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::AlterConfigsResource,
};

/// Puts levels into force; the text says why it could not.
type Apply = dyn Fn(&LogLevels) -> Result<(), String> + Send + Sync;

/// The log levels of this process. Shards read them for DescribeConfigs, the controller changes them.
pub struct Loggers {
    levels: Mutex<LogLevels>,
    apply: Box<Apply>,
}

impl Loggers {
    /// With the levels in force and what puts others into force.
    #[must_use]
    pub fn new(
        levels: LogLevels,
        apply: impl Fn(&LogLevels) -> Result<(), String> + Send + Sync + 'static,
    ) -> Loggers {
        Loggers {
            levels: Mutex::new(levels),
            apply: Box::new(apply),
        }
    }

    /// The levels in force.
    #[must_use]
    pub fn levels(&self) -> LogLevels {
        self.lock().clone()
    }

    /// Carries out those parts of a request that are about loggers and that nothing has refused yet.
    pub(crate) fn alter(
        &self,
        request: &IncrementalAlterConfigsRequest,
        answer: &mut IncrementalAlterConfigsResponse,
    ) {
        for (resource, row) in request.resources.iter().zip(&mut answer.responses) {
            if resource.resource_type != BROKER_LOGGER || row.error_code != 0 {
                continue;
            }
            if let Err((code, text)) = self.alter_one(resource, request.validate_only) {
                row.error_code = code.code();
                row.error_message = Some(text);
            }
        }
    }

    fn alter_one(
        &self,
        resource: &AlterConfigsResource,
        validate_only: bool,
    ) -> Result<(), (ErrorCode, String)> {
        let mut levels = self.lock();
        let altered = levels
            .altered(resource)
            .map_err(|refusal| (refusal.code, refusal.message))?;
        if validate_only || altered == *levels {
            return Ok(());
        }
        (self.apply)(&altered).map_err(|text| (ErrorCode::UnknownServerError, text))?;
        *levels = altered;
        for config in &resource.configs {
            let level = config.value.as_deref().unwrap_or("that around it");
            tracing::info!(logger = %config.name, level, "log level changed");
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LogLevels> {
        // The levels are replaced as a whole: a panic elsewhere leaves them usable.
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Levels that nothing obeys, for tests of other things.
impl Default for Loggers {
    fn default() -> Loggers {
        Loggers::new(LogLevels::all(LogLevel::Info), |_| Ok(()))
    }
}

impl fmt::Debug for Loggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loggers").field(&self.levels()).finish()
    }
}
