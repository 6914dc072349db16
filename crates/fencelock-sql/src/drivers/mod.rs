//! The drivers, each behind the feature that names its version.
#[cfg(feature = "mysql_async-0_37")]
mod mysql_async;
#[cfg(feature = "rusqlite")]
mod rusqlite;
#[cfg(feature = "sqlx-0_8")]
mod sqlx_mysql;
#[cfg(feature = "sqlx-0_8")]
mod sqlx_postgres;
#[cfg(feature = "tokio-postgres-0_7")]
mod tokio_postgres;
