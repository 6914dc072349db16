//! An operator's hand in whatever speaks Redis' protocol.
use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// What a command is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A number, too.
    Text(String),
    List(Vec<Self>),
    Nothing,
}
impl Reply {
    /// Its texts, those of lists within lists, too.
    pub(crate) fn into_texts(self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text],
            Self::List(all) => all.into_iter().flat_map(Self::into_texts).collect(),
            Self::Nothing => vec![String::new()],
        }
    }
    /// Of a list of names and values.
    pub(crate) fn into_fields(self) -> BTreeMap<String, String> {
        let mut texts = self.into_texts().into_iter();
        std::iter::from_fn(|| Some((texts.next()?, texts.next()?))).collect()
    }
    /// As `redis-cli` prints it into a pipe.
    pub(crate) fn into_lines(self) -> String {
        self.into_texts().join("\n")
    }
}
/// Of a text with a `name:value` in each line.
pub(crate) fn fields(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// One command, on a connection of its own. An error of the server's is one.
pub(crate) fn ask(port: u16, password: Option<&str>, words: &[&str], patience: Duration) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), patience)?;
    stream.set_read_timeout(Some(patience))?;
    let mut text = String::new();
    let mut say = |words: &[&str]| {
        text.push_str(&format!("*{}\r\n", words.len()));
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    };
    password.iter().for_each(|password| say(&["AUTH", password]));
    say(words);
    stream.write_all(text.as_bytes())?;
    let mut answers = BufReader::new(stream);
    if password.is_some() {
        read(&mut answers)?;
    }
    read(&mut answers)
}
fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before it has answered"));
    };
    let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("no answer: {line:?}"));
    let count = || rest.parse::<i64>().map_err(|_| odd());
    Ok(match kind {
        "+" | ":" => Reply::Text(rest.to_owned()),
        "-" => return Err(io::Error::other(rest.to_owned())),
        "$" | "*" if count()? < 0 => Reply::Nothing,
        "$" => {
            let mut bytes = vec![0; usize::try_from(count()?).map_err(|_| odd())? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
        "*" => Reply::List((0..count()?).map(|_| read(from)).collect::<io::Result<_>>()?),
        _ => return Err(odd()),
    })
}
