/** What an operator can do about a log message. Messages without an entry need nothing. */
export const REMEDIES: Readonly<Record<string, string>> = {
  'bulk action waits': 'check the disk, or PostgreSQL; it goes on automatically',
  'data budget level changed':
    'look at what uses the tunnels, or raise `AGENT_DATA_BUDGET`: [On a SIM card](sim-card.md#a-budget)',
  'data budget not saved': 'check the disk; what is counted from here on is lost when the agent ends',
  'data budget unreadable': 'none: the period counts as one that has just begun; check the disk',
  'history of the device not written': 'check the disk',
  'history of the device cannot be read': 'check the disk',
  'history cannot be read: file set aside, a new one begins': 'check the disk',
  'history not kept: its file cannot be used': 'do what `reason` says, then restart the gateway',
  'history not written': 'check the disk; what was counted meanwhile is written later',
  'history not written to the shared database': 'check PostgreSQL; it is written later',
  'history of silent gateways cannot be read': 'check PostgreSQL',
  'API cannot accept connections': 'check the limit of open files, then restart',
  'API and its token cross the network unencrypted; use AGENT_DOMAIN for remote access':
    'remove AGENT_HOST unless the network is trusted',
  'shared database does not answer: existing accounts keep working, changes are rejected':
    'check PostgreSQL and the network; `device-agent gateway doctor` says more',
  'shared database reached through another gateway':
    'check the network between this gateway and PostgreSQL; [everything works](cluster.md#cut-off) meanwhile',
  'other gateways not recorded': 'check the disk',
  'recorded addresses of other gateways unreadable':
    'check the disk; until PostgreSQL answers directly, this gateway finds no other one that reaches it',
  'changes of the shared database not applied': 'check the disk; report it as a bug when it repeats',
  "certificates of the gateway's own names not renewed":
    'set `GATEWAY_ACME_DIRECTORY` as before; `GATEWAY_ACME_OWN_NAMES=none` deletes them',
  'renewal times not read from the CA': 'report it as a bug when it repeats; certificates are renewed by their age',
  'certificates not revoked: no ACME CA is set':
    'set GATEWAY_ACME_DIRECTORY as before until the log says `certificate revoked`, or revoke them at their CA',
  'certificate not revoked: it has expired':
    'none: clients refuse it by now; see in earlier lines why it was not revoked',
  'key of the ACME account not changed: its CA refuses':
    'see `reason`; the account keeps its key. If that key has leaked, have the CA deactivate the account',
  'certificate not revoked: its CA refuses': 'see `reason`: another CA or account may have issued it; revoke it there',
  'certificate not revoked, or key of the ACME account not changed': 'see `err`; it is tried again',
  'leaked certificate revoked before there is another one':
    'find out why no other one is issued: `device-agent gateway certificates`; until then, clients may refuse the name',
  'renewal moved as the CA asks': 'none; `why` is a page of the CA about it',
  'certificate issued with other terms than set':
    'change the setting: `GATEWAY_ACME_CHAIN` names a chain that the CA does not offer',
  'shared database was put back to an older state: what came after it is gone':
    'if nobody has restored PostgreSQL or promoted a standby: check which server `GATEWAY_DATABASE_URL` leads to',
  'catching up with the shared database': 'none: a slow link, or many changes',
  'caught up with the shared database': 'none',
  'copy differed from the shared database: mended':
    'none after an upgrade, or when the copy was put back; else check the disk',
  'everything copied from the shared database':
    'if PostgreSQL was not restored, the copy not lost or damaged, and the gateway not away for a week: check PostgreSQL',
  'shared database not left': 'before another machine serves it: `device-agent gateway nodes remove`',
  'renewed CA not stored in the shared database': 'check PostgreSQL; the next start tries again',
  'removed from the shared database, for another gateway to serve it; exiting':
    'disable the service here, unless this machine is to serve again',
  'shared database not served by this gateway; exiting': 'what `reason` says',
  'network of a person not remembered':
    'check the disk, or PostgreSQL; until then, guesses of others can make the person wait',
  'other gateways not told what is online': 'check PostgreSQL; it is repeated every few seconds',
  'endpoint stopped': 'none, if its agent is online at another gateway; else fix what `reason` names',
  'revoked here, but not yet at other gateways': 'check the gateways that `nodes` names',
  'DNS challenge not passed on to other gateways': 'check PostgreSQL; the order is made again',
  'state of the cluster not checked': 'report it as a bug when it repeats',
  'revocation failed': 'report it as a bug; restart the gateway',
  'update of devices stopped': 'look at a device that went back; then `gateway releases resume`, or `stop` for good',
  'update of devices not stopped': 'check the database and the disk',
  'update given up by a gateway: the others do not install it':
    'see `journalctl -u device-agent-update` there; `device-agent update --to` tries it again',
  'event destination unreachable: its events wait':
    'fix what `reason` names, at the receiver or with `PATCH /event_destinations`',
  'event refused by its destination: passed over':
    'see why at the receiver; then [send it again or let it go](events.md#refused-events)',
  'events that are no changes not recorded':
    'check the disk, or PostgreSQL; `too many events a second`: look for agents that reconnect all the time',
  'sign-in to the dashboard not recorded': 'check the disk, or PostgreSQL; the sign-in works',
  'sign-out not recorded':
    'check the disk, or PostgreSQL; the cookie is deleted in the browser, and the list has its session until that would have ended',
  'state of an event destination not recorded': 'check the disk, or PostgreSQL',
  'port not held by systemd': 'run `command`; until then, the ports of `settings` are closed during a restart',
  'primary node not chosen': 'check PostgreSQL; it is repeated every second',
  'lost commits not recorded': 'check PostgreSQL; it is repeated every second',
  'primary node not handed over': 'check PostgreSQL; another gateway replaces it within 12 s',
  'lost gateway not forgotten': 'check PostgreSQL; it is repeated every few seconds',
  'agent command not passed on': 'check PostgreSQL, then give the command again',
  'tcp port of another gateway not opened': 'free the port on this machine',
  'other gateway does not answer': 'check that the gateway at `address` runs, and the network between them',
  'connection of a load balancer without a PROXY header':
    'let the load balancer send one, or remove its address from GATEWAY_LOAD_BALANCERS',
  'address database unusable; keeping the one in memory': 'replace `file` with an MMDB file that the gateway may read',
  'API request failed': 'fix what `reason` names, often the disk',
  'invalid response of an upstream': 'see [My device answers 502](device-answers-502.md)',
  'upstream sends invalid responses': 'see [My device answers 502](device-answers-502.md)',
  'HTTP/1 connection failed unexpectedly': 'report it as a bug',
  'HTTP/2 connection failed unexpectedly': 'report it as a bug',
  'authtoken not renewed':
    'if the device should be online: check it on the gateway, then run `device-agent join` on it',
  'renewed authtoken not saved': 'check the disk; the agent fetches it again after a restart',
  'page sessions unreadable; all ended': 'sign in again; check the disk when it repeats',
  'sightings of devices not recorded': 'check the disk',
  'addresses that are online not recorded': 'check the disk; until then, clients get 404 right after the next start',
  'addresses that were online cannot be read': 'check the disk; clients get 404 until their agents are back',
  'policies of agents not recorded': 'check the disk, or the authtoken that `credential` names',
  'TLS connection failed': 'report it as a bug when it repeats',
  'agent connection failed': 'report it as a bug when it repeats',
  'TLS edge port not opened: too many ports': 'use fewer ports in TLS edges',
  'TLS edge port unavailable; retrying': 'free the port, or change the TLS edge',
  'TLS edges reload failed; keeping the previous ones': 'check the disk and the database',
  'agent certificate not renewed; retrying in a minute': 'check the disk',
  'agent listener failed': 'restart the gateway',
  'device waits for approval': 'approve it: `device-agent gateway devices approve <name>`',
  'enrolment refused': 'make a new code with `gateway invite`; many of them: somebody guesses codes',
  'name not kept from devices':
    'a disk error: free space. Too many names: look for an agent that binds a new name each time, and free its names with `gateway names`. The name is kept when it is bound the next time',
  'name of a device taken by another authtoken':
    'if that was no intention, change the rules of the authtoken that uses it now',
  'event loop stalled': 'look for expensive policies and a busy machine',
  'gateway not trusted; joining later':
    'update the gateway, or make a new code; `reason` says whose certificate it has',
  'gateway unreachable; joining later': 'check the network; `reason` says what failed',
  'join code not readable': 'give the file to the service’s user, or set AGENT_JOIN_CODE',
  'waiting for approval': 'approve the device on the gateway: `device-agent gateway devices approve <name>`',
  'no file descriptor left: new connections are closed':
    'raise `LimitNOFILE=` of the service (`ulimit -n`), or lower `GATEWAY_MAX_CONNECTIONS`',
  'agent refused': 'correct the authtoken or its limits, as `code` says',
  'agent request failed': 'report it as a bug',
  'certificate authority not recorded in the database': 'check the disk',
  'change of the certificate authority not followed':
    'see `reason`: the encryption key, or the files in the gateway’s folder',
  'backup failed': 'fix what `err` names; it is tried again every half hour',
  'backup not recorded in the database': 'none: the backup is there; the dashboard names the one before',
  'certificate authority replaced: clients that trust the old one cannot connect':
    'restore ca.pem and its key from a backup, or give the new ca.pem to agents and clients',
  'certificate check failed': 'check the database and the disk',
  'certificate file unusable; issuing a new certificate': 'check the disk when it repeats',
  'certificate not saved; the next start issues it again': 'check the disk',
  'certificate unusable; serving one of the local CA': 'upload the certificate again',
  'clock set back; certificate dates reset': 'check the clock',
  'domain certificate lookup failed': 'check the database',
  'gateway certificates not ordered: cannot write to the database': 'check the disk',
  'certificate job failed': 'report it as a bug',
  'certificate not issued': 'fix what `err` names, often a DNS record; the gateway retries',
  'changed settings need a restart': 'restart when convenient',
  'damaged copy of the shared database set aside': 'check the disk; the gateway makes the copy again',
  'damage of the copy not recorded': 'make the disk writable, then restart',
  'origin of the copy not recorded':
    'make the disk writable, then restart; until then, a damaged copy would stop the start',
  'damaged file set aside':
    'check the disk; after an edit by hand, see [Files on disk](files-on-disk.md#edit-tunnelsjson-by-hand)',
  'clock wrong; using the time of the gateway': 'set the clock, or let NTP do so; the agent is online all the same',
  'clock right again; using it': 'nothing',
  'time of the gateway not proved':
    'follow `reason`; a gateway that is older than this agent proves no time: update it, or set the clock of the device',
  'proved time not saved': 'check the disk',
  'proved time unreadable': 'check the disk; the file is written again',
  'data folder is read-only or full: tunnels cannot be created or deleted': 'free space, or check the disk',
  'disk is read-only or full: copy of the shared database kept in memory': 'follow `reason`, then restart',
  'disk is read-only or full: existing accounts keep working, changes are rejected': 'follow `reason`, then restart',
  'encryption key does not match what is encrypted in the database':
    'restore the key that belongs to the database; if it is lost for good, see [Lost encryption key](operations.md#lost-encryption-key)',
  'encryption key not recorded in the database': 'see `err`; the next start tries again',
  'endpoint refused': 'correct the authtoken’s ACL or the domain, as `code` says',
  'failed write could not be undone': 'check the disk',
  'enrolment unreadable; this device keeps its settings':
    'restore `enrolment.json` from a backup; without it, the device cannot renew its authtoken',
  'not joined again; this device keeps its settings': 'use a valid code of the site, or take the code away',
  'file missing or damaged; last good copy restored': 'check the disk',
  'copy of the file is out of date': 'make the disk writable; the next change or start writes the copy again',
  'gateway relay cannot accept connections': 'check the limit of open files, then restart',
  'management request failed': 'report it as a bug with `operation`',
  'new tunnel URL could not be saved; keeping it in memory': 'check the disk',
  'no API key yet; create one': 'run the `command`',
  'declared tunnel not applied': 'follow `reason`',
  'declared tunnels not applied': 'correct the files in `folder`, then restart',
  'no tunnels yet; start one': 'run the `command`',
  'no progress; systemd restarts the service':
    'nothing after lines that say that attempts are pending: the SDK was stuck; otherwise report it as a bug when it repeats',
  'remote API disabled: cannot read the API token; fix it and reload': 'fix the file that `reason` names, then reload',
  'remote API without authentication: anyone with the URL can create and delete tunnels':
    'set AGENT_API_AUTH=token unless this is intended',
  'request failed unexpectedly': 'report it as a bug',
  'endpoint in one of two sessions only; retrying':
    'correct what `reason` names; until then, the loss of one gateway takes the endpoint offline',
  'no second session; retrying':
    'let devices reach GATEWAY_NODE_ADDRESS of every gateway; without it, they keep their one session',
  'service not loaded': 'reinstall the program',
  'sign-in page failed': 'report it as a bug',
  'further connection refused':
    'small requests of this agent wait behind its transfers; raise the limit on sessions when it repeats',
  'session attempt failed; retrying': 'run `device-agent doctor` when it lasts',
  'session lost': 'nothing; the agent reconnects',
  'restart failed; exiting': 'fix what `err` says; a service restarts the agent',
  'not restarted: the settings are not valid': 'fix what `reason` names, then restart the agent again',
  'settings reload failed; keeping the previous ones': 'correct what `reason` names, then reload again',
  'shutdown timed out; exiting': 'nothing; saved state is complete',
  'systemd notification failed; check that systemd-notify is installed': 'install systemd-notify',
  'tcp endpoint listener failed': 'check the limit of open files',
  'some tunnels are not online': 'run `device-agent doctor`, which says why',
  'port of a name not recorded':
    'free space on the disk, or mend it; after a restart, the endpoint may get another port',
  'port not recorded': 'check the disk',
  'tcp port of a cloud endpoint not opened':
    'stop the other program, or change the `url` of the endpoint; or set `GATEWAY_TCP_PORTS`. The port is tried every 5 s',
  'traffic policy of a cloud endpoint cannot be used':
    'set its policy again: an IP policy or certificate authority that it names was deleted',
  'traffic policy failed': 'correct the policy of the endpoint',
  'too many sessions to log: lines left out':
    'look for an agent with this authtoken that connects again and again; `times` is how many sessions were left out',
  'traffic policy logs too much: lines left out': 'let the policy log less; `times` is how many lines were left out',
  'traffic policy is probably wrong': 'correct the rules that `problems` names',
  'the gateway refuses names below localhost; move these tunnels': 'run the `command`',
  'tunnel failed; retrying': 'fix what `reason` names, such as the authtoken’s ACL',
  'upstream unreachable': 'start the upstream, or change what the tunnel forwards to',
  'TLS with upstream failed': 'do what `reason` says; see [https upstreams](agent-api.md#https-upstreams)',
  'unexpected bind error': 'report it as a bug',
  'unexpected error in the API': 'report it as a bug',
  'unexpected error; exiting': 'report it as a bug; the service restarts',
  'unrecognised settings': 'correct or remove the names in `settings`',
  'unusable part of the file dropped; no copy could be kept': 'check the disk',
  'unused endpoint could not be closed': 'restart when the URL stays in use',
  'endpoint not reached from outside': 'mend the `stage` that broke; see [What clients get](#what-clients-get)',
  'endpoint not probed': 'report it as a bug',
  'upstream not allowed; connection rejected': 'change AGENT_ALLOW_UPSTREAMS or the tunnel’s upstream',
  'upstream keeps connections open that clients have left':
    'restart the upstream; see [Upstreams that hang](agent-api.md#upstreams-that-hang)',
  'session ended: an upstream keeps connections open that clients have left':
    'restart the `upstream`; see [Upstreams that hang](agent-api.md#upstreams-that-hang)',
  'upstream relay cannot accept connections': 'check the limit of open files, then restart',
  'using the last good copy; it could not be restored': 'check the disk',
};
