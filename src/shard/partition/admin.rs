//! What administrators and their tools ask of a partition. Every question is answered at once.

use thalweg_config::TopicConfig;
use thalweg_protocol::ErrorCode;
use thalweg_replica::Refused;
use thalweg_storage::LogOptions;
use thalweg_types::Offset;

use super::{Partition, ack_point};
use crate::question::{Answer, LogSize, Question};

impl Partition {
    /// Answers a question.
    ///
    /// # Errors
    /// Kafka's code for the partition's part of the answer.
    pub(crate) fn ask(&self, question: &Question) -> Result<Answer, ErrorCode> {
        self.follow_log();
        match question {
            Question::EpochEnd { current, asked } => {
                let found = self.replica.borrow().on_epoch_end(*current, *asked);
                found.map(Answer::EpochEnd).map_err(Refused::code)
            }
            Question::Size => Ok(Answer::Size(LogSize {
                bytes: self.log().size_bytes(),
                dir: self.dir(),
                future: None,
            })),
            Question::Producers => {
                let producers = self.replica.borrow().producers().active();
                Ok(Answer::Producers(producers))
            }
            Question::DeleteRecords { before } => {
                self.delete_records(*before).map(Answer::LogStart)
            }
            // Of the shard, which has its moves.
            Question::Move { .. } => Err(ErrorCode::UnknownServerError),
        }
    }

    /// From here on the log begins later. It is for the asker to make that durable before it answers
    /// its client.
    fn delete_records(&self, before: Offset) -> Result<Offset, ErrorCode> {
        let start = self.replica.borrow().on_delete_records(before);
        let start = start.map_err(Refused::code)?;
        self.begin_at(start);
        Ok(start)
    }

    /// What lies below `start`, which is not above the high watermark, is served no more.
    pub(super) fn begin_at(&self, start: Offset) {
        let mut effects = Vec::new();
        self.log().raise_start(start);
        self.replica.borrow_mut().on_log_start(start, &mut effects);
        self.carry_out(effects);
    }

    /// Obeys other settings of its topic from now on. What is in the log stays as it is (RP-107).
    pub(crate) fn reconfigure(&self, config: &TopicConfig, options: LogOptions) {
        let ack_point = ack_point(&options);
        let mut effects = Vec::new();
        {
            let mut replica = self.replica.borrow_mut();
            replica.on_ack_point(ack_point, &mut effects);
            replica.on_min_in_sync(config.min_insync_replicas(), &mut effects);
        }
        self.log().set_options(options);
        self.carry_out(effects);
    }
}
