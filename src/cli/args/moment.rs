//! Moments as people write them: ISO 8601, or milliseconds since 1970.

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970 of `2026-01-02`, `2026-01-02T03:04`, `2026-01-02T03:04:05.678`, each
/// followed by `Z`, by an offset such as `+01:00`, or by nothing, which means UTC; or of a plain number.
///
/// # Errors
/// What is wrong, for the user.
pub(super) fn parse_moment(text: &str) -> Result<i64, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text
            .parse()
            .map_err(|_| format!("`{text}` is too many milliseconds"));
    }
    let moment = parse_iso(text).filter(|ms| *ms >= 0);
    moment.ok_or_else(|| {
        format!("`{text}` is no time since 1970; write 2026-01-02T03:04:05Z or milliseconds")
    })
}

/// A moment in milliseconds since 1970 as `2026-01-02T03:04:05.678Z`.
pub(crate) fn format_moment(ms: i64) -> String {
    let (mut days, in_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    // Counted from the first of March of year 0, so that the leap day is the last of its year; an era is
    // 400 years.
    days += 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + carry;
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, millis) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

/// Milliseconds of an ISO 8601 duration of days, hours, minutes and seconds, such as `P1DT2H30M` or
/// `PT0.5S`. Months and years have no fixed length and are none.
///
/// # Errors
/// What is wrong, for the user.
pub(super) fn parse_span(text: &str) -> Result<i64, String> {
    let units = [('D', DAY_MS), ('H', 3_600_000), ('M', 60_000), ('S', 1_000)];
    let span = || {
        let body = text.strip_prefix('P')?;
        let (days, time) = match body.split_once('T') {
            Some((_, "")) => return None,
            Some((days, time)) => (days, time),
            None => (body, ""),
        };
        let (day_units, time_units) = units.split_at(1);
        let sum = span_part(days, day_units)?.checked_add(span_part(time, time_units)?)?;
        (!body.is_empty()).then_some(sum)
    };
    span().ok_or_else(|| format!("`{text}` is no duration; write for example PT1H30M or P7D"))
}

/// Numbers with units, each at most once and in this order. Only seconds may have a fraction.
fn span_part(mut text: &str, units: &[(char, i64)]) -> Option<i64> {
    let mut sum = 0_i64;
    for (unit, ms) in units {
        let Some((number, rest)) = text.split_once(*unit) else {
            continue;
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if *unit == 'S' => (whole, fraction),
            Some(_) => return None,
            None => (number, "0"),
        };
        let (whole, thousandths) = (digits(whole, whole.len())?, fraction_ms(fraction)?);
        sum = sum
            .checked_add(whole.checked_mul(*ms)?)?
            .checked_add(thousandths)?;
        text = rest;
    }
    text.is_empty().then_some(sum)
}

/// The digits behind the point of a number of seconds, in milliseconds: what is finer is dropped.
fn fraction_ms(text: &str) -> Option<i64> {
    if !(1..=9).contains(&text.len()) {
        return None;
    }
    digits(text, text.len())?;
    format!("{text:0<3}").get(..3)?.parse().ok()
}

fn parse_iso(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let days = days_since_1970(date)?;
    if time.is_empty() {
        return (!text.ends_with(['T', ' '])).then_some(days * DAY_MS);
    }
    let (clock, offset_minutes) = match time.find(['Z', '+', '-']) {
        None => (time, 0),
        Some(at) => (&time[..at], zone_minutes(&time[at..])?),
    };
    Some(days * DAY_MS + clock_ms(clock)? - offset_minutes * 60_000)
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar.
fn days_since_1970(date: &str) -> Option<i64> {
    let mut fields = date.split('-');
    let year = digits(fields.next()?, 4)?;
    let month = digits(fields.next()?, 2)?;
    let day = digits(fields.next()?, 2)?;
    if fields.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month - 1).ok()?;
    if !(1..=lengths[before]).contains(&day) {
        return None;
    }
    let leap_days = |years: i64| years / 4 - years / 100 + years / 400;
    let to_year = |y: i64| 365 * y + leap_days(y);
    // Leap days of the years before this one.
    let whole_years = to_year(year - 1) - to_year(1969);
    Some(whole_years + lengths[..before].iter().sum::<i64>() + day - 1)
}

fn clock_ms(clock: &str) -> Option<i64> {
    let mut fields = clock.split(':');
    let hours = digits(fields.next()?, 2).filter(|h| *h < 24)?;
    let minutes = digits(fields.next()?, 2).filter(|m| *m < 60)?;
    let (seconds, fraction) = match fields.next() {
        None => ("00", None),
        Some(field) => match field.split_once('.') {
            None => (field, None),
            Some((seconds, fraction)) => (seconds, Some(fraction)),
        },
    };
    let seconds = digits(seconds, 2).filter(|s| *s < 60)?;
    let millis = match fraction {
        None => 0,
        Some(text) => fraction_ms(text)?,
    };
    let is_over = fields.next().is_none();
    is_over.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis)
}

/// `Z`, `+HH:MM`, `+HHMM` or `+HH`, in minutes east of Greenwich.
fn zone_minutes(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _other => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (rest, "00"),
        4 => rest.split_at_checked(2)?,
        5 => rest.split_once(':')?,
        _other => return None,
    };
    let hours = digits(hours, 2).filter(|h| *h < 24)?;
    Some(sign * (hours * 60 + digits(minutes, 2).filter(|m| *m < 60)?))
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let is_number = text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{DAY_MS, format_moment, parse_moment, parse_span};

    #[test]
    fn moments_are_written_as_they_are_read() {
        assert_eq!(format_moment(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_moment(1_767_323_045_678), "2026-01-02T03:04:05.678Z");
        for day in (0..60_000).step_by(7) {
            let ms = day * DAY_MS + 86_399_999;
            assert_eq!(parse_moment(&format_moment(ms)), Ok(ms));
        }
    }

    #[test]
    fn spans() {
        let known = [
            ("PT1S", 1_000),
            ("PT0.5S", 500),
            ("PT1H30M", 5_400_000),
            ("P7D", 604_800_000),
            ("P1DT2H3M4.005S", 93_784_005),
            ("PT0S", 0),
        ];
        for (text, expected) in known {
            assert_eq!(parse_span(text), Ok(expected), "{text}");
        }
        let bad = [
            "",
            "P",
            "PT",
            "1H",
            "PT1",
            "P1H",
            "PT1D",
            "PT1M1H",
            "P1Y",
            "PT1.5H",
            "PT-1S",
            "PT1.S",
            "P99999999999999999D",
            "PT1HX",
        ];
        for text in bad {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    /// Compared with `date -u -d ... +%s%3N`.
    #[test]
    fn moments() {
        let known = [
            ("0", 0),
            ("1767312000000", 1_767_312_000_000),
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400_000),
            ("2000-03-01T00:00Z", 951_868_800_000),
            ("2026-01-02T03:04:05Z", 1_767_323_045_000),
            ("2026-01-02T03:04:05.678", 1_767_323_045_678),
            ("2026-01-02T03:04:05.6Z", 1_767_323_045_600),
            ("2026-01-02T03:04:05.678901234Z", 1_767_323_045_678),
            ("2026-01-02 04:04:05+01:00", 1_767_323_045_000),
            ("2026-01-01T22:34:05-0430", 1_767_323_045_000),
            ("2100-03-01T00:00:00+00", 4_107_542_400_000),
        ];
        for (text, expected) in known {
            assert_eq!(parse_moment(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment() {
        let bad = [
            "",
            "99999999999999999999",
            "2026-01",
            "2026-13-01",
            "2025-02-29",
            "2100-02-29",
            "2026-01-02T",
            "2026-01-02T24:00",
            "2026-01-02T03",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05+1",
            "2026-01-02T03:04:05+0x:00",
            "2026-01-02T03:04:05ZZ",
            "1969-12-31T23:59",
            "2026-1-2",
            "2026-01-02T03:04:05é",
        ];
        for text in bad {
            assert!(parse_moment(text).is_err(), "{text}");
        }
    }
}
