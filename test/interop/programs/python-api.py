"""Takes every resource that ngrok's Python API client and the gateway share through its life; prints a line per step."""

import json
import os
import sys

import ngrok
from ngrok.datatypes import EventSourceReplace, EventTarget

with open(sys.argv[1]) as file:
    given = json.load(file)
client = ngrok.Client(os.environ["NGROK_API_KEY"], base_url=os.environ["NGROK_API_BASE_URL"])
described = dict(description="a", metadata="{}")


def live(name, service, created, updated, members):
    """Create, get, list, update, delete; get again must answer 404."""
    item = None

    def create():
        nonlocal item
        item = service.create(**created)
        compare(item, created)

    def compare(answer, sent):
        for member in members:
            if member in sent:
                assert getattr(answer, member) == sent[member], f"{member}: {getattr(answer, member)!r}"

    def get():
        assert service.get(item.id).id == item.id

    def list_():
        assert item.id in [one.id for one in service.list(limit="100")]

    def update():
        compare(service.update(item.id, **updated), updated)
        compare(service.get(item.id), updated)

    def delete():
        service.delete(item.id)
        try:
            service.get(item.id)
        except ngrok.NotFoundError:
            return
        raise AssertionError("it is still there")

    for step in (create, get, list_, update, delete):
        failure = None
        try:
            step()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        print(json.dumps({"name": f"{name}: {step.__name__.rstrip('_')}", "failure": failure}), flush=True)


changed = dict(description="b", metadata="")
both = ["description", "metadata"]
live("api_keys", client.api_keys, described, changed, both)
live("bot_users", client.bot_users, dict(name="a"), dict(name="b", active=False), ["name", "active"])
live("service_users", client.service_users, dict(name="a"), dict(name="b", active=False), ["name", "active"])
live("credentials", client.credentials, dict(described, acl=["bind:a.example.com"]), dict(changed, acl=["bind:b.example.com"]), both + ["acl"])
live("certificate_authorities", client.certificate_authorities, dict(described, ca_pem=given["ca"]), changed, both)
live("tls_certificates", client.tls_certificates, dict(described, certificate_pem=given["certificate"], private_key_pem=given["key"]), changed, both)
live("ip_policies", client.ip_policies, described, changed, both)
policy = client.ip_policies.create()
rule = dict(described, cidr="192.0.2.0/24", ip_policy_id=policy.id, action="allow")
live("ip_policy_rules", client.ip_policy_rules, rule, dict(changed, cidr="2001:db8::/32"), both + ["cidr"])
live("reserved_domains", client.reserved_domains, dict(described, domain="python.example.com"), changed, both + ["domain"])
live("backends.tunnel_group", client.backends.tunnel_group, dict(described, labels={"a": "b"}), dict(changed, labels={"c": "d"}), both + ["labels"])
live("backends.http_response", client.backends.http_response, dict(described, body="x", status_code=404), dict(changed, body="y"), both + ["body"])
live("edges.tls", client.edges.tls, dict(described, hostports=["python.example.com:443"]), changed, both)
live("ip_restrictions", client.ip_restrictions, dict(described, type="api", ip_policy_ids=[policy.id]), changed, both + ["type"])
live("reserved_addrs", client.reserved_addrs, described, changed, both)
live("vaults", client.vaults, dict(described, name="python"), dict(changed, name="other"), both + ["name"])
vault = client.vaults.create(name="kept")
secret = dict(described, name="a", value="hidden", vault_id=vault.id)
live("secrets", client.secrets, secret, dict(changed, value="other"), both)
hook = EventTarget(client, {"webhook": {"url": "https://events.example.com/"}})
live("event_destinations", client.event_destinations, dict(described, format="json", target=hook), changed, both + ["format"])
destination = client.event_destinations.create(target=hook)
source = EventSourceReplace(client, {"type": "domain_created.v0"})
subscription = dict(described, sources=[source], destination_ids=[destination.id])
live("event_subscriptions", client.event_subscriptions, subscription, changed, both)
denies = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}'
endpoint = dict(described, type="cloud", url=f"https://python.{given['domain']}", traffic_policy=denies)
live("endpoints", client.endpoints, endpoint, dict(changed, traffic_policy=denies + " "), both + ["traffic_policy"])



def end_sign_ins():
    session, other = client.application_sessions.list()
    agent = session.browser_session.user_agent
    assert (agent.browser_name, agent.device_type) == ("curl", ""), agent
    person = client.application_users.get(session.application_user.id)
    assert (person.email, person.identity_provider.url) == ("ann@example.com", "https://idp.example.com"), person
    session.delete()
    assert [one.id for one in client.application_sessions.list()] == [other.id]
    client.application_users.delete(other.application_user.id)
    assert list(client.application_users.list()) == []


failure = None
try:
    end_sign_ins()
except Exception as error:
    failure = f"{type(error).__name__}: {error}"
print(json.dumps({"name": "application_sessions, application_users: get, list, delete", "failure": failure}), flush=True)

# Kinds that the gateway does not have answer, too, with nothing in them.
NAMES = """agent_ingresses api_keys application_sessions application_users bot_users certificate_authorities credentials
endpoints event_destinations event_subscriptions ip_policies ip_policy_rules ip_restrictions reserved_addrs reserved_domains
secrets service_users ssh_certificate_authorities ssh_credentials ssh_host_certificates ssh_user_certificates tls_certificates
tunnels tunnel_sessions vaults backends.failover backends.http_response backends.static_address backends.tunnel_group
backends.weighted edges.https edges.tcp edges.tls"""
for name in NAMES.split():
    failure = None
    try:
        service = client
        for part in name.split("."):
            service = getattr(service, part)
        list(service.list())
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    print(json.dumps({"name": f"{name}: list without options", "failure": failure}), flush=True)
failure = None
try:
    list(client.vaults.get_secrets_by_vault(vault.id))
except Exception as error:
    failure = f"{type(error).__name__}: {error}"
print(json.dumps({"name": "vaults: secrets of one", "failure": failure}), flush=True)
failure = None
try:
    of = client.event_subscriptions.create(sources=[source]).id
    added = "domain_deleted.v0"
    assert client.event_sources.create(of, type=added).type == added
    assert client.event_sources.get(of, added).type == added
    assert client.event_sources.update(of, added).type == added
    client.event_sources.delete(of, "domain_created.v0")
    assert [one.type for one in client.event_sources.list(of).sources] == [added]
except Exception as error:
    failure = f"{type(error).__name__}: {error}"
print(json.dumps({"name": "event_sources: create, get, update, delete, list", "failure": failure}), flush=True)
