//! An agent with the Rust SDK. Binds what a line of JSON on stdin asks for, prints what it got, and runs until stdin ends.

use std::error::Error;

use ngrok::prelude::*;
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use url::Url;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut stdin = BufReader::new(tokio::io::stdin());
    let mut line = String::new();
    stdin.read_line(&mut line).await?;
    let plan: Value = serde_json::from_str(&line)?;

    let session = ngrok::Session::builder()
        .authtoken(text(&plan, "authtoken"))
        .server_addr(text(&plan, "server"))?
        .ca_cert(text(&plan, "ca").into())
        .metadata("of the session")
        .connect()
        .await?;
    let mut urls = Vec::new();
    let mut tls = Vec::new();
    let mut http = Vec::new();
    for wanted in plan["endpoints"].as_array().ok_or("no endpoints")? {
        if text(wanted, "protocol") == "tls" {
            let mut builder = session.tls_endpoint();
            builder.domain(text(wanted, "domain")).metadata(text(wanted, "metadata"));
            if wanted["policy"].is_string() {
                builder.traffic_policy(text(wanted, "policy"));
            }
            if wanted["edge_termination"] == true {
                builder.termination("".into(), "".into());
            }
            let upstream = Url::parse(&format!("tcp://{}", text(&plan, "upstream")))?;
            let endpoint = builder.listen_and_forward(upstream).await?;
            urls.push(endpoint.url().to_owned());
            tls.push(endpoint);
        } else {
            let mut builder = session.http_endpoint();
            builder.domain(text(wanted, "domain")).metadata(text(wanted, "metadata"));
            if wanted["policy"].is_string() {
                builder.traffic_policy(text(wanted, "policy"));
            }
            if wanted["binding"].is_string() {
                builder.binding(text(wanted, "binding"));
            }
            let upstream = Url::parse(&format!("http://{}", text(&plan, "upstream")))?;
            let endpoint = builder.listen_and_forward(upstream).await?;
            urls.push(endpoint.url().to_owned());
            http.push(endpoint);
        }
    }
    println!("{}", json!({ "session": session.id(), "urls": urls }));
    stdin.read_to_string(&mut line).await?;
    Ok(())
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}
