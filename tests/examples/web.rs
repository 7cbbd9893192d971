//! A web service that works on one order at a time, across all its processes: `cargo run -p dlock-tasks --example web [REDIS_URL [ADDRESS]]`.
//!
//! `POST /orders/4711/from/anna` works on the order for a while. A request for an order that somebody else works on waits for 200 ms, and then is
//! answered with 409 and the name of the holder. No thread waits for it, however many requests wait. `GET /orders/4711` tells that name.

#![allow(clippy::print_stdout, reason = "it talks to the one who runs it")]

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use redis_dlock::{DLockConfig, DLockGenerator, Error};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(200);
const WORK: Duration = Duration::from_secs(3);

async fn work(
    State(generator): State<Arc<DLockGenerator>>,
    Path((order, user)): Path<(String, String)>,
) -> (StatusCode, String) {
    work_on(&generator, &order, &user)
        .await
        .unwrap_or_else(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

async fn work_on(generator: &Arc<DLockGenerator>, order: &str, user: &str) -> Result<(StatusCode, String), Error> {
    let lock = generator.generate_with(DLockConfig::new("ORDER", order).with_holder_name(user))?;
    let Some(hold) = lock.try_hold_async_for(PATIENCE).await? else {
        return Ok((StatusCode::CONFLICT, who_works_on(generator, order).await));
    };
    tokio::time::sleep(WORK).await;
    hold.ensure_valid()?;
    match hold.release_async().await {
        Err(error) if error.is_lost() => Err(error),
        // The work is done. A release that was not confirmed is repeated in the background.
        _ => Ok((StatusCode::OK, "done".to_owned())),
    }
}

async fn who(State(generator): State<Arc<DLockGenerator>>, Path(order): Path<String>) -> String {
    who_works_on(&generator, &order).await
}

/// Returns the name of the holder, in words. To describe a lock blocks, so it is a blocking thread's work.
async fn who_works_on(generator: &Arc<DLockGenerator>, order: &str) -> String {
    let (generator, order) = (Arc::clone(generator), order.to_owned());
    let described = tokio::task::spawn_blocking(move || generator.describe("ORDER", &order)).await;
    let name = described.ok().and_then(Result::ok).and_then(|described| described.holder?.told?.thread);
    name.map_or_else(|| "it is not known who works on it".to_owned(), |name| format!("{name} works on it"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let generator = Arc::new(DLockGenerator::connect(&url)?);
    let service = Router::new().route("/orders/{order}", get(who)).route("/orders/{order}/from/{user}", post(work));
    let service = service.with_state(generator);
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("http://{}", listener.local_addr()?);
        axum::serve(listener, service).await
    })?;
    Ok(())
}
