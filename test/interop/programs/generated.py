"""Calls both APIs with clients that openapi-python-client generated, and checks that no operation is missing."""

import importlib
import json
import os
import pkgutil
import ssl
import sys
import urllib.request

TRUST = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])


def operations(package, url):
    """The names of all generated operations; importing them fails when one is broken."""
    api = importlib.import_module(f"{package}.api")
    modules = [info for info in pkgutil.walk_packages(api.__path__, f"{package}.api.") if not info.ispkg]
    for module in modules:
        importlib.import_module(module.name)
    document = json.load(urllib.request.urlopen(f"{url}/openapi.json", context=TRUST if url.startswith("https") else None))
    wanted = sum("operationId" in one for path in document["paths"].values() for one in path.values())
    assert len(modules) == wanted, f"{len(modules)} of {wanted} operations are generated"


def management(url):
    from management_api_client import AuthenticatedClient
    from management_api_client.api.bot_users import bot_users_create, bot_users_list
    from management_api_client.models import BotUsersCreateBody
    from management_api_client.models.bot_users_create_service_version import BotUsersCreateServiceVersion
    from management_api_client.models.bot_users_list_service_version import BotUsersListServiceVersion

    operations("management_api_client", url)
    client = AuthenticatedClient(base_url=url, token=os.environ["NGROK_API_KEY"], verify_ssl=TRUST)
    body = BotUsersCreateBody(name="generated")
    created = bot_users_create.sync(client=client, body=body, service_version=BotUsersCreateServiceVersion("2"))
    listed = bot_users_list.sync(client=client, service_version=BotUsersListServiceVersion("2"))
    assert created.id in [user.id for user in listed.bot_users], listed


def agent(url):
    from device_agent_api_client import Client
    from device_agent_api_client.api.default import delete_tunnel, list_tunnels, start_tunnel
    from device_agent_api_client.models import StartTunnelBody

    operations("device_agent_api_client", url)
    client = Client(base_url=url)
    created = start_tunnel.sync(client=client, body=StartTunnelBody(forwards_to=8080))
    assert created.url in [tunnel.url for tunnel in list_tunnels.sync(client=client)], created
    assert delete_tunnel.sync_detailed(created.domain, client=client).status_code == 204


{"management": management, "agent": agent}[sys.argv[1]](sys.argv[2])
