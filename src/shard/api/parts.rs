//! Cutting requests that name many partitions into parts, each of which a coordinator works on in one turn.

use std::collections::VecDeque;

use thalweg_types::limits::OFFSET_COMMIT_BYTES_PER_TURN;

/// A topic of a request, with a row for each of its partitions.
pub(crate) trait Rows {
    type Row;

    /// Its rows.
    fn rows(&mut self) -> &mut Vec<Self::Row>;

    /// The same topic with other rows.
    fn with(&self, rows: Vec<Self::Row>) -> Self;

    /// Bytes that a row brings along.
    fn bytes(_row: &Self::Row) -> usize {
        0
    }
}

/// The topics in parts of at most `max` rows, in their order. One without partitions counts as a row: it is one of the
/// answer, too. A part also ends with the row with which it brings more along than one turn takes.
pub(crate) fn parts<T: Rows>(topics: Vec<T>, max: usize) -> VecDeque<Vec<T>> {
    let mut parts: VecDeque<Vec<T>> = VecDeque::new();
    let (mut left, mut bytes_left) = (0, 0);
    for mut topic in topics {
        let mut rest = std::mem::take(topic.rows());
        loop {
            if left == 0 {
                parts.push_back(Vec::new());
                (left, bytes_left) = (max, OFFSET_COMMIT_BYTES_PER_TURN);
            }
            let fits = |row: &T::Row| {
                let has_room = bytes_left > 0;
                bytes_left = bytes_left.saturating_sub(T::bytes(row));
                has_room
            };
            let fitting = rest.iter().map(fits).take(left).take_while(|fits| *fits);
            let later = rest.split_off(fitting.count());
            left = match bytes_left {
                0 => 0,
                _ => left - rest.len().max(1),
            };
            if let Some(part) = parts.back_mut() {
                part.push(topic.with(rest));
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use thalweg_types::limits::OFFSET_COMMIT_BYTES_PER_TURN;

    use super::{Rows, parts};

    #[derive(Clone, Debug, PartialEq)]
    struct Topic(char, Vec<usize>);

    impl Rows for Topic {
        type Row = usize;

        fn rows(&mut self) -> &mut Vec<usize> {
            &mut self.1
        }

        fn with(&self, rows: Vec<usize>) -> Topic {
            Topic(self.0, rows)
        }
    }

    /// Rows that bring along what they say.
    #[derive(Clone, Debug, PartialEq)]
    struct Heavy(Vec<usize>);

    impl Rows for Heavy {
        type Row = usize;

        fn rows(&mut self) -> &mut Vec<usize> {
            &mut self.0
        }

        fn with(&self, rows: Vec<usize>) -> Heavy {
            Heavy(rows)
        }

        fn bytes(row: &usize) -> usize {
            *row
        }
    }

    #[test]
    fn bi_8_what_rows_bring_along_ends_a_part() {
        const MAX: usize = OFFSET_COMMIT_BYTES_PER_TURN;
        let cut = parts(
            vec![
                Heavy(vec![1, MAX - 2, 1, 1]),
                Heavy(vec![3 * MAX, 1]),
                Heavy(vec![MAX - 2]),
                Heavy(vec![5, 6]),
            ],
            500,
        );
        let wanted = [
            vec![Heavy(vec![1, MAX - 2, 1])],
            vec![Heavy(vec![1]), Heavy(vec![3 * MAX])],
            vec![Heavy(vec![1]), Heavy(vec![MAX - 2]), Heavy(vec![5])],
            vec![Heavy(vec![6])],
        ];
        assert_eq!(cut, wanted);
    }

    #[test]
    fn bi_8_many_partitions_go_in_parts() {
        const MAX: usize = 500;
        let topic = |name, rows: usize| Topic(name, (0..rows).collect());
        assert_eq!(parts::<Topic>(Vec::new(), MAX).len(), 0);
        let small = vec![topic('a', 1), topic('b', 0)];
        assert_eq!(parts(small.clone(), MAX), [small]);
        let large = vec![
            topic('a', MAX - 1),
            topic('b', 0),
            topic('c', 2 * MAX + 1),
            topic('d', 1),
        ];
        let cut = parts(large.clone(), MAX);
        let sizes = cut.iter().map(|part| {
            let of_topic = |t: &Topic| (t.0, t.1.len());
            part.iter().map(of_topic).collect::<Vec<_>>()
        });
        let wanted = [
            vec![('a', MAX - 1), ('b', 0)],
            vec![('c', MAX)],
            vec![('c', MAX)],
            vec![('c', 1), ('d', 1)],
        ];
        assert_eq!(sizes.collect::<Vec<_>>(), wanted);
        let of_c = cut.iter().flatten().filter(|t| t.0 == 'c');
        let of_c: Vec<usize> = of_c.flat_map(|t| t.1.clone()).collect();
        assert_eq!(of_c, large[2].1);
    }
}
