//! What the wrapper tells the minder on its command line.

use std::ffi::OsString;

use super::clock::Nanos;
use super::schedule::Schedule;
use crate::args::OnLoss;

/// `minder GROUP ON-LOSS GRACE MARGIN DEADLINE MAX-HOLD -- CMD…`, times in boot-time nanoseconds, `-` for none.
#[derive(Debug)]
pub(super) struct Orders {
    /// The group that the job joins; `None`: one of its own.
    pub(super) group: Option<i32>,
    pub(super) schedule: Schedule,
    pub(super) command: Vec<OsString>,
}

impl Orders {
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let s = &self.schedule;
        let optional = |n: Option<Nanos>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let fixed = [
            "minder".to_owned(),
            self.group.map_or_else(|| "-".to_owned(), |g| g.to_string()),
            s.on_loss.to_string(),
            s.grace.to_string(),
            s.margin.to_string(),
            optional(s.deadline),
            optional(s.max_hold),
            "--".to_owned(),
        ];
        fixed.into_iter().map(OsString::from).chain(self.command.iter().cloned()).collect()
    }

    /// The same from what follows `minder`.
    pub(super) fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut word = || args.next().and_then(|a| a.into_string().ok());
        let optional = |w: String| if w == "-" { Some(None) } else { w.parse::<Nanos>().ok().map(Some) };
        let group = match word()? {
            none if none == "-" => None,
            group => Some(group.parse().ok()?),
        };
        let on_loss: OnLoss = word()?.parse().ok()?;
        let (grace, margin) = (word()?.parse().ok()?, word()?.parse().ok()?);
        let (deadline, max_hold) = (optional(word()?)?, optional(word()?)?);
        if word()? != "--" {
            return None;
        }
        let command: Vec<OsString> = args.collect();
        let schedule = Schedule::new(on_loss, grace, margin, deadline, max_hold);
        (!command.is_empty()).then_some(Self { group, schedule, command })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    // Planted: deadline and max-hold swapped; the command through `String`.
    #[test]
    fn orders_survive_the_command_line() {
        let command = vec![OsString::from_vec(vec![0xff, b'x']), "--".into(), "".into()];
        let schedule = Schedule::new(OnLoss::Kill, 1, 2, Some(3), None);
        let orders = Orders { group: Some(7), schedule, command: command.clone() };
        let back = Orders::parse(orders.to_args().into_iter().skip(1)).expect("the same again");
        assert_eq!((back.group, back.command), (Some(7), command));
        assert_eq!(format!("{:?}", back.schedule), format!("{:?}", orders.schedule));
        assert!(Orders::parse(["-".into(), "warn".into()].into_iter()).is_none());
    }
}
