//! ZooKeeper's encoding: numbers big end first, a length before everything that has one.

/// What is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// One message; its length comes in front when it is whole.
    pub(crate) fn message() -> Self {
        Self(vec![0; 4])
    }
    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }
    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.len(value.len());
        self.0.extend(value);
        self
    }
    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
    pub(crate) fn texts<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a str>) -> &mut Self {
        self.len(values.len());
        for value in values {
            self.text(value);
        }
        self
    }
    pub(crate) fn len(&mut self, len: usize) -> &mut Self {
        self.int(len_of(len))
    }
    pub(crate) fn done(mut self) -> Vec<u8> {
        let len = len_of(self.0.len() - 4);
        self.0[..4].copy_from_slice(&len.to_be_bytes());
        self.0
    }
}
/// No message of ours is longer than a server takes, which is a megabyte.
fn len_of(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// What is read. `None`: the other side does not speak this language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn part<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*part)
    }
    pub(crate) fn int(&mut self) -> Option<i32> {
        self.part().map(i32::from_be_bytes)
    }
    pub(crate) fn long(&mut self) -> Option<i64> {
        self.part().map(i64::from_be_bytes)
    }
    pub(crate) fn bool(&mut self) -> Option<bool> {
        self.part::<1>().map(|[byte]| byte != 0)
    }
    /// A length of -1 is nothing at all, which is as good as empty.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.int()?.max(0)).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
    pub(crate) fn texts(&mut self) -> Option<Vec<String>> {
        let count = usize::try_from(self.int()?.max(0)).ok()?;
        // Each takes four bytes at least: whoever says more lies.
        let mut all = Vec::with_capacity(count.min(self.0.len() / 4));
        for _ in 0..count {
            // A foreign name that is no UTF-8 is nobody's whom we know.
            all.push(String::from_utf8_lossy(self.bytes()?).into_owned());
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::message();
        writer.int(-7).long(1 << 40).bool(true).bytes(b"\xFF").text("a/b").texts(["x", ""].into_iter());
        let bytes = writer.done();
        let mut reader = Reader(&bytes);
        assert_eq!(reader.int(), Some(i32::try_from(bytes.len() - 4).unwrap()));
        assert_eq!((reader.int(), reader.long(), reader.bool()), (Some(-7), Some(1 << 40), Some(true)));
        assert_eq!((reader.bytes(), reader.text()), (Some(&b"\xFF"[..]), Some("a/b")));
        assert_eq!(reader.texts(), Some(vec!["x".to_owned(), String::new()]));
        assert!(reader.0.is_empty());
    }
    #[test]
    fn what_is_cut_off_is_refused() {
        assert_eq!(Reader(&[0, 0, 0, 9, 1]).bytes(), None);
        assert_eq!(Reader(&[0xFF; 4]).bytes(), Some(&b""[..]));
        assert_eq!(Reader(&[0x7F, 0xFF, 0xFF, 0xFF]).texts(), None);
        assert_eq!(Reader(&[0, 0]).int(), None);
    }
}
