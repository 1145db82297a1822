"""An agent with the Python SDK. Binds what a line of JSON on stdin asks for, prints what it got, and runs until stdin ends."""

import asyncio
import json
import sys

import ngrok


async def main():
    plan = json.loads(sys.stdin.readline())
    builder = ngrok.SessionBuilder().authtoken(plan["authtoken"]).server_addr(plan["server"])
    session = await builder.ca_cert(bytearray(plan["ca"].encode())).metadata("of the session").connect()
    urls = []
    for wanted in plan["endpoints"]:
        is_tls = wanted["protocol"] == "tls"
        builder = session.tls_endpoint() if is_tls else session.http_endpoint()
        builder = builder.domain(wanted["domain"]).metadata(wanted.get("metadata", ""))
        if "policy" in wanted:
            builder = builder.traffic_policy(wanted["policy"])
        if wanted.get("edge_termination"):
            builder = builder.termination(bytearray(), bytearray())
        listener = await builder.listen()
        listener.forward(plan["upstream"] if is_tls else f"http://{plan['upstream']}")
        urls.append(listener.url())
    print(json.dumps({"urls": urls}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
