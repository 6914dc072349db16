//! `fencelock cell get` and `fencelock cell set`: small values with a version.

use std::io::Read;
use std::os::unix::ffi::OsStringExt;

use fencelock::{Version, Versioned};
use serde::Serialize;

use super::Finish;
use crate::args::{Cell, CellGet, CellSet, Common};
use crate::exit::{self, Failure};
use crate::render::{self, complain, plain};

pub(crate) fn main(common: &Common, args: &Cell) -> Result<Finish, Failure> {
    match args {
        Cell::Get(args) => get(common, args),
        Cell::Set(args) => set(common, args),
    }
}

#[derive(Serialize)]
struct Object<'a> {
    name: &'a str,
    version: i64,
    value: Option<&'a str>,
    /// Of a value that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

fn get(common: &Common, args: &CellGet) -> Result<Finish, Failure> {
    let url = super::url(common)?;
    let now = super::runtime()?.block_on(async {
        let client = super::connect_to_look(common, &url).await?;
        Ok::<_, Failure>(client.cell(&args.name).load().await?)
    })?;
    let code = if now.value.is_some() { exit::OK } else { exit::NONE };
    if args.json {
        render::print(&object(&args.name, &now)?)?;
    } else if let Some(value) = &now.value {
        render::print_bytes(value)?;
    } else {
        complain(&format!("{} has no value", plain(&args.name)));
    }
    Ok(Finish::Code(code))
}

fn object(name: &str, now: &Versioned) -> Result<String, Failure> {
    let value = now.value.as_deref().map(std::str::from_utf8);
    let hex = match (&value, &now.value) {
        (Some(Err(_)), Some(bytes)) => Some(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        _ => None,
    };
    render::object(&Object { name, version: now.version.get(), value: value.and_then(Result::ok), hex })
}

fn set(common: &Common, args: &CellSet) -> Result<Finish, Failure> {
    let url = super::url(common)?;
    let value = if args.remove { None } else { Some(value(args)?) };
    super::runtime()?.block_on(async {
        let client = super::connect(common, &url).await?;
        let cell = client.cell(&args.name);
        let version = match (args.if_version.map(Version::new), value) {
            (None, Some(value)) => cell.update(|_| value.clone()).await?.version,
            (None, None) => loop {
                let now = cell.load().await?;
                if now.value.is_none() {
                    break now.version;
                }
                if let Ok(version) = cell.remove(now.version).await? {
                    break version;
                }
            },
            (Some(expected), value) => {
                let answer = match value {
                    Some(value) => cell.compare_exchange(expected, value).await?,
                    None => cell.remove(expected).await?,
                };
                match answer {
                    Ok(version) => version,
                    Err(conflict) => {
                        complain(&format!("{}: {conflict}", plain(&args.name)));
                        return Ok(Finish::Code(exit::BUSY));
                    }
                }
            }
        };
        render::print(&format!("{version}\n"))?;
        Ok(Finish::Code(exit::OK))
    })
}

/// As it is, byte for byte; no more of it is read than a cell can have.
fn value(args: &CellSet) -> Result<Vec<u8>, Failure> {
    if let Some(given) = args.value.clone() {
        return Ok(given.into_vec());
    }
    let (mut value, most) = (Vec::new(), fencelock::Cell::MAX_BYTES as u64 + 1);
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut value)
        .map_err(|e| Failure::new(exit::INPUT, format!("cannot read standard input: {e}")))?;
    Ok(value)
}
