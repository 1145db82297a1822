import type Libsql from 'libsql';
import { OperatorError } from '../../../lib/errors.ts';

/**
 * What to do with a database of an older version of this program. Commands beside a running gateway must not upgrade its
 * database: that gateway may still be the older version.
 */
export type OlderSchema = 'upgrade' | 'refuse' | 'keep';

/**
 * Upgrades a database to the current schema, in one transaction.
 *
 * @throws {OperatorError} for a newer version's database, or for an older one when upgrading is refused
 */
export function migrate(engine: Libsql.Database, file: string, older: OlderSchema = 'upgrade'): void {
  // Lock first: two processes may start with the same folder.
  engine.exec('BEGIN IMMEDIATE');
  try {
    const [row] = engine.prepare('PRAGMA user_version').all() as { user_version: number }[];
    const version = row?.user_version ?? 0;
    if (version > MIGRATIONS.length) {
      throw new OperatorError(
        `${file} was written by a newer version of this program (schema ${version}, this one knows ${MIGRATIONS.length}): use that version, or restore an older backup`,
      );
    }
    if (version < MIGRATIONS.length && older === 'refuse') {
      throw new OperatorError(
        `${file} was written by an older version of this program: restart the gateway, which brings it up to date, and try again`,
      );
    }
    if (version < MIGRATIONS.length && older === 'upgrade') {
      for (const sql of MIGRATIONS.slice(version)) engine.exec(sql);
      engine.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
    }
    engine.exec('COMMIT');
  } catch (error) {
    engine.exec('ROLLBACK');
    throw error;
  }
}

/**
 * The migrations of the schema: entry n upgrades a database from version n to n + 1. Released entries never change.
 *
 * Identifiers sort by age, so `id` is at once the primary key and the order of every list. Times are RFC 3339 text in
 * UTC with whole seconds, which sorts by time as well. JSON columns hold values that are always read as a whole.
 */
const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE facts (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  -- Makes CNAME targets this gateway's own, and stable when a domain is deleted and reserved again.
  INSERT INTO facts VALUES ('account', lower(hex(randomblob(16))));

  CREATE TABLE bot_users (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    name TEXT NOT NULL,
    active INTEGER NOT NULL CHECK (active IN (0, 1))
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE api_keys (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    owner_id TEXT REFERENCES bot_users ON DELETE CASCADE,
    secret_hash BLOB NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX api_keys_by_owner ON api_keys (owner_id);

  CREATE TABLE credentials (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    owner_id TEXT REFERENCES bot_users ON DELETE CASCADE,
    acl TEXT NOT NULL,
    secret_hash BLOB NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX credentials_by_owner ON credentials (owner_id);

  CREATE TABLE endpoint_configurations (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    type TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE tls_certificates (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    certificate_pem TEXT NOT NULL,
    private_key BLOB NOT NULL,
    facts TEXT NOT NULL,
    issued_at TEXT
  ) STRICT;

  CREATE TABLE certificate_authorities (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    ca_pem TEXT NOT NULL,
    facts TEXT NOT NULL
  ) STRICT;

  CREATE TABLE reserved_domains (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    domain TEXT NOT NULL UNIQUE,
    certificate_id TEXT REFERENCES tls_certificates,
    http_endpoint_configuration_id TEXT REFERENCES endpoint_configurations,
    https_endpoint_configuration_id TEXT REFERENCES endpoint_configurations,
    policy TEXT,
    renews_at TEXT,
    job TEXT,
    -- When the provisioner has to look at the domain next; null when there is nothing to do.
    due_at TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX reserved_domains_by_certificate ON reserved_domains (certificate_id);
  CREATE INDEX reserved_domains_by_http ON reserved_domains (http_endpoint_configuration_id);
  CREATE INDEX reserved_domains_by_https ON reserved_domains (https_endpoint_configuration_id);
  CREATE INDEX reserved_domains_due ON reserved_domains (due_at) WHERE due_at IS NOT NULL;

  CREATE TABLE http_response_backends (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    body TEXT NOT NULL,
    headers TEXT,
    status_code INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE tunnel_group_backends (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    labels TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE ip_policies (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE ip_policy_rules (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    ip_policy_id TEXT NOT NULL REFERENCES ip_policies ON DELETE CASCADE,
    cidr TEXT NOT NULL,
    action TEXT NOT NULL,
    UNIQUE (ip_policy_id, cidr)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE tls_edges (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    hostports TEXT,
    backend TEXT,
    ip_restriction TEXT,
    mutual_tls TEXT,
    tls_termination TEXT,
    traffic_policy TEXT
  ) STRICT, WITHOUT ROWID;

  -- What edges claim and name, kept beside their documents so that the database itself guards it.
  CREATE TABLE tls_edge_hostports (
    hostport TEXT PRIMARY KEY NOT NULL,
    edge_id TEXT NOT NULL REFERENCES tls_edges ON DELETE CASCADE,
    -- Labels from last to first: all names below a domain are one range of the index.
    reversed_host TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX tls_edge_hostports_by_edge ON tls_edge_hostports (edge_id);
  CREATE INDEX tls_edge_hostports_by_host ON tls_edge_hostports (reversed_host);

  CREATE TABLE tls_edge_references (
    edge_id TEXT NOT NULL REFERENCES tls_edges ON DELETE CASCADE,
    ip_policy_id TEXT REFERENCES ip_policies,
    certificate_authority_id TEXT REFERENCES certificate_authorities,
    CHECK ((ip_policy_id IS NULL) <> (certificate_authority_id IS NULL))
  ) STRICT;
  CREATE INDEX tls_edge_references_by_edge ON tls_edge_references (edge_id);
  CREATE INDEX tls_edge_references_by_ip_policy ON tls_edge_references (ip_policy_id);
  CREATE INDEX tls_edge_references_by_certificate_authority ON tls_edge_references (certificate_authority_id);
  `,
  `
  -- The gateway's own names with certificates of a public authority.
  CREATE TABLE own_domains (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    domain TEXT NOT NULL UNIQUE,
    certificate_id TEXT REFERENCES tls_certificates,
    policy TEXT,
    renews_at TEXT,
    job TEXT,
    due_at TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX own_domains_by_certificate ON own_domains (certificate_id);
  `,
  `
  -- The day of each port's last use.
  CREATE TABLE tcp_ports (
    port INTEGER PRIMARY KEY NOT NULL,
    used_on TEXT NOT NULL
  ) STRICT;
  `,
  `
  -- One code lets many devices join a site; each gets an authtoken of its own.
  CREATE TABLE enrolment_keys (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    -- The domain whose wildcard the names of its devices are below.
    site TEXT NOT NULL,
    owner_id TEXT NOT NULL REFERENCES bot_users ON DELETE CASCADE,
    secret_hash BLOB NOT NULL,
    -- Null: any number of devices.
    max_uses INTEGER,
    uses INTEGER NOT NULL,
    expires_at TEXT,
    revoked_at TEXT,
    needs_approval INTEGER NOT NULL CHECK (needs_approval IN (0, 1)),
    tcp_ports TEXT,
    labels TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX enrolment_keys_by_owner ON enrolment_keys (owner_id);

  CREATE TABLE devices (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    name TEXT NOT NULL,
    -- The name before a rename, which stays the device's own until it joins again.
    old_name TEXT,
    site TEXT NOT NULL,
    owner_id TEXT NOT NULL REFERENCES bot_users ON DELETE CASCADE,
    enrolment_key_id TEXT REFERENCES enrolment_keys ON DELETE SET NULL,
    -- A device proves with the key of its installation that it is the same one.
    install_hash BLOB NOT NULL UNIQUE,
    credential_id TEXT REFERENCES credentials ON DELETE SET NULL,
    -- Counts its authtokens; rotation raises the wanted one.
    generation INTEGER NOT NULL,
    issued_generation INTEGER NOT NULL,
    status TEXT NOT NULL,
    tcp_ports TEXT,
    labels TEXT NOT NULL,
    -- What its last session reported.
    last_seen_at TEXT,
    last_ip TEXT,
    agent_version TEXT,
    history TEXT NOT NULL,
    UNIQUE (site, name)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX devices_by_owner ON devices (owner_id);
  CREATE INDEX devices_by_key ON devices (enrolment_key_id);
  CREATE INDEX devices_by_credential ON devices (credential_id);
  `,
  `
  -- Whether devices get names directly below their site, besides those that end in their own name.
  ALTER TABLE enrolment_keys ADD COLUMN own_names_only INTEGER NOT NULL DEFAULT 0 CHECK (own_names_only IN (0, 1));
  ALTER TABLE devices ADD COLUMN own_names_only INTEGER NOT NULL DEFAULT 0 CHECK (own_names_only IN (0, 1));
  -- The operator's rules of an authtoken that was rotated, for the next one.
  ALTER TABLE devices ADD COLUMN kept_rules TEXT NOT NULL DEFAULT '[]';

  -- Who may use a name directly below a site.
  CREATE TABLE site_names (
    hostname TEXT PRIMARY KEY NOT NULL,
    site TEXT NOT NULL,
    -- Null: a name that rules of an authtoken allow, or one that was released.
    device_id TEXT REFERENCES devices ON DELETE CASCADE,
    -- The device that held it before it was released. All others can get it.
    released_from TEXT REFERENCES devices ON DELETE CASCADE,
    created_at TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX site_names_by_site ON site_names (site);
  CREATE INDEX site_names_by_device ON site_names (device_id);
  CREATE INDEX site_names_by_releaser ON site_names (released_from);
  `,
  `
  -- Whether a device is online; left set by a gateway that was killed.
  ALTER TABLE devices ADD COLUMN online INTEGER NOT NULL DEFAULT 0 CHECK (online IN (0, 1));
  `,
  `
  -- What is online at each of several gateways that share the database.
  CREATE TABLE online (
    key TEXT PRIMARY KEY NOT NULL,
    node TEXT NOT NULL,
    agent TEXT NOT NULL,
    -- Above 0: of an additional session of the agent.
    connection INTEGER NOT NULL,
    -- Refers to nothing: it counts until its node has taken it offline, also when the authtoken is deleted.
    credential_id TEXT NOT NULL,
    owner_id TEXT,
    -- The address that it occupies; null: none.
    place TEXT,
    protocol TEXT NOT NULL,
    pooled INTEGER NOT NULL CHECK (pooled IN (0, 1)),
    -- Whether its authtoken has the address elsewhere now.
    taken INTEGER NOT NULL CHECK (taken IN (0, 1)),
    view TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX online_by_place ON online (place);
  -- Commands to agents, for the nodes that have their sessions.
  CREATE TABLE agent_commands (
    id TEXT PRIMARY KEY NOT NULL,
    node TEXT NOT NULL,
    session_id TEXT NOT NULL,
    command TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Sessions of people that began before a row have ended: those at a host, or those of a person.
  CREATE TABLE ended_sign_ins (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    host TEXT,
    -- Of an identity provider, and the person there.
    issuer TEXT,
    subject TEXT,
    CHECK ((host IS NULL) = (issuer IS NOT NULL AND subject IS NOT NULL))
  ) STRICT, WITHOUT ROWID;
  `,
  `
  CREATE TABLE cloud_endpoints (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    -- What it competes for. Pooled ones share it.
    place TEXT NOT NULL,
    proto TEXT NOT NULL,
    host TEXT NOT NULL,
    port INTEGER NOT NULL,
    internal INTEGER NOT NULL CHECK (internal IN (0, 1)),
    pooling_enabled INTEGER NOT NULL CHECK (pooling_enabled IN (0, 1)),
    traffic_policy TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX cloud_endpoints_by_place ON cloud_endpoints (place);
  `,
  `
  CREATE TABLE vaults (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    name TEXT NOT NULL UNIQUE,
    -- Whose authtokens may use it in their policies; null: nobody's.
    owner_id TEXT REFERENCES bot_users ON DELETE SET NULL,
    -- API keys, which may be deleted.
    created_by TEXT,
    last_updated_by TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX vaults_by_owner ON vaults (owner_id);

  CREATE TABLE vault_secrets (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    name TEXT NOT NULL,
    vault_id TEXT NOT NULL REFERENCES vaults,
    -- Encrypted with a key outside the database.
    value BLOB NOT NULL,
    created_by TEXT,
    last_updated_by TEXT,
    UNIQUE (vault_id, name)
  ) STRICT;
  `,
  `
  CREATE TABLE reserved_addrs (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    port INTEGER NOT NULL UNIQUE,
    -- Whose authtokens may bind it; null: all that their rules allow.
    owner_id TEXT REFERENCES bot_users ON DELETE CASCADE
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX reserved_addrs_by_owner ON reserved_addrs (owner_id);
  `,
  `
  CREATE TABLE ip_restrictions (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    type TEXT NOT NULL UNIQUE,
    enforced INTEGER NOT NULL CHECK (enforced IN (0, 1)),
    ip_policy_ids TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Who has changed what: rows without what is secret in them.
  CREATE TABLE audit_log (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    type TEXT NOT NULL,
    object_id TEXT NOT NULL,
    by TEXT NOT NULL,
    from_address TEXT,
    before TEXT,
    after TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX audit_log_by_object ON audit_log (object_id);
  `,
  `
  -- Links that let browsers in at a host.
  CREATE TABLE share_links (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    host TEXT NOT NULL,
    -- Whose endpoints they open: a bot user, or an authtoken without one; null: those of the operator.
    owner TEXT,
    secret_hash BLOB NOT NULL,
    expires_at TEXT NOT NULL,
    max_uses INTEGER,
    uses INTEGER NOT NULL,
    last_used_at TEXT,
    -- An API key, gateway for a command there, or an authtoken.
    created_by TEXT NOT NULL
  ) STRICT;
  CREATE INDEX share_links_by_owner ON share_links (owner);
  CREATE INDEX share_links_by_expiry ON share_links (expires_at);
  `,
  `
  -- People who have signed in at endpoints, and their sessions: what lists show. The sessions themselves are in cookies.
  CREATE TABLE application_users (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    -- Of an identity provider, and the person there.
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    email TEXT NOT NULL,
    name TEXT NOT NULL,
    last_login TEXT NOT NULL,
    UNIQUE (issuer, subject)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE application_sessions (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES application_users ON DELETE CASCADE,
    public_url TEXT NOT NULL,
    -- The only host of the session; null when it shares a domain with others.
    host TEXT,
    endpoint_id TEXT NOT NULL,
    -- Whose policy it is: the id of an authtoken, a TLS edge or a cloud endpoint.
    payer TEXT NOT NULL,
    ip_address TEXT NOT NULL,
    user_agent TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX application_sessions_by_user ON application_sessions (user_id);
  CREATE INDEX application_sessions_by_payer ON application_sessions (payer);
  CREATE INDEX application_sessions_by_end ON application_sessions (expires_at);

  -- Set when only one session of the person has ended.
  ALTER TABLE ended_sign_ins ADD COLUMN session_id TEXT;
  `,
  `
  -- People who sign in at this gateway.
  CREATE TABLE people (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    -- In lower case.
    email TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    groups TEXT NOT NULL,
    -- Empty: no password.
    password_hash BLOB NOT NULL,
    password_set_at TEXT
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE passkeys (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    person_id TEXT NOT NULL REFERENCES people ON DELETE CASCADE,
    -- Of WebAuthn, in base64url.
    credential_id TEXT NOT NULL UNIQUE,
    public_key BLOB NOT NULL,
    counter INTEGER NOT NULL,
    name TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX passkeys_by_person ON passkeys (person_id);

  -- Links by which people choose how they sign in; a used one is deleted.
  CREATE TABLE person_links (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    person_id TEXT NOT NULL REFERENCES people ON DELETE CASCADE,
    secret_hash BLOB NOT NULL,
    expires_at TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX person_links_by_person ON person_links (person_id);
  `,
  `
  CREATE INDEX audit_log_by_type ON audit_log (type);
  CREATE TABLE event_destinations (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    -- Encrypted with a key outside the database.
    target BLOB NOT NULL
  ) STRICT;
  CREATE TABLE event_subscriptions (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    sources TEXT NOT NULL,
    destination_ids TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  -- How far destinations are.
  CREATE TABLE event_deliveries (
    id TEXT PRIMARY KEY NOT NULL REFERENCES event_destinations ON DELETE CASCADE,
    created_at TEXT NOT NULL,
    delivered TEXT NOT NULL,
    skipped INTEGER NOT NULL,
    failing_since TEXT,
    error TEXT
  ) STRICT, WITHOUT ROWID;
  -- Events that are no changes, until they are delivered.
  CREATE TABLE activity_events (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    type TEXT NOT NULL,
    object TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Set when a browser has signed out of its session: whose policy that was of.
  ALTER TABLE ended_sign_ins ADD COLUMN payer TEXT;
  CREATE INDEX ended_sign_ins_by_session ON ended_sign_ins (session_id);
  `,
  `
  -- Changes by devices, agents and people, who may repeat theirs: their number is limited.
  CREATE INDEX audit_log_of_others ON audit_log (id) WHERE substr(by, 1, 3) <> 'ak_' AND by <> 'gateway';
  `,
  `
  -- From where people have signed in with their passwords: guesses elsewhere do not keep them out there.
  CREATE TABLE familiar_networks (
    person_id TEXT NOT NULL REFERENCES people ON DELETE CASCADE,
    -- A keyed digest.
    network TEXT NOT NULL,
    used_at TEXT NOT NULL,
    PRIMARY KEY (person_id, network)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX familiar_networks_by_use ON familiar_networks (used_at);

  -- Challenges for which passkeys were used, until forms with them have expired.
  CREATE TABLE used_challenges (
    challenge TEXT PRIMARY KEY NOT NULL,
    passkey_id TEXT NOT NULL REFERENCES passkeys ON DELETE CASCADE,
    expires_at TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX used_challenges_by_passkey ON used_challenges (passkey_id);
  CREATE INDEX used_challenges_by_end ON used_challenges (expires_at);
  `,
  `
  -- Events that destinations have refused, and that were passed over.
  CREATE TABLE refused_events (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    destination_id TEXT NOT NULL REFERENCES event_destinations ON DELETE CASCADE,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    event_created_at TEXT NOT NULL,
    reason TEXT NOT NULL,
    send_again INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE UNIQUE INDEX refused_events_by_destination ON refused_events (destination_id, event_id);
  CREATE INDEX refused_events_by_event ON refused_events (event_id);
  `,
  `
  -- The authtoken that a device had before it was revoked or rotated, with which its agent may still try.
  ALTER TABLE devices ADD COLUMN former_credential_id TEXT;
  CREATE INDEX devices_by_former_credential ON devices (former_credential_id) WHERE former_credential_id IS NOT NULL;
  -- Whether devices may bind names of internal endpoints that end in their own name.
  ALTER TABLE enrolment_keys ADD COLUMN internal_names INTEGER NOT NULL DEFAULT 0 CHECK (internal_names IN (0, 1));
  ALTER TABLE devices ADD COLUMN internal_names INTEGER NOT NULL DEFAULT 0 CHECK (internal_names IN (0, 1));
  `,
  `
  -- Whether a person may use the dashboard.
  ALTER TABLE people ADD COLUMN dashboard INTEGER NOT NULL DEFAULT 0 CHECK (dashboard IN (0, 1));
  CREATE INDEX people_with_dashboard ON people (id) WHERE dashboard = 1;
  -- Set when a person has made a change at the dashboard: it is an operator's, as those of API keys are.
  ALTER TABLE audit_log ADD COLUMN at_dashboard INTEGER NOT NULL DEFAULT 0;
  DROP INDEX audit_log_of_others;
  CREATE INDEX audit_log_of_others ON audit_log (id)
    WHERE substr(by, 1, 3) <> 'ak_' AND by <> 'gateway' AND at_dashboard = 0;
  `,
  `
  -- Of a change of a traffic policy: before and after, compressed, and encrypted with a key outside the database.
  ALTER TABLE audit_log ADD COLUMN policies BLOB;
  -- Which policies agents had bound last, by the URL of the endpoint.
  CREATE TABLE bound_policies (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    -- Refers to nothing: it counts also when the authtoken is rotated.
    credential_id TEXT NOT NULL,
    -- Digests with a key.
    policy_digest TEXT NOT NULL,
    earlier_digests TEXT NOT NULL,
    access TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX bound_policies_by_credential ON bound_policies (credential_id, created_at);
  `,
  `
  -- Read every few seconds with several gateways.
  CREATE INDEX devices_online ON devices (credential_id) WHERE online = 1;
  `,
  `
  -- Of a message: the destination that alone gets it.
  ALTER TABLE activity_events ADD COLUMN only_for TEXT;
  `,
  `
  -- Who is notified of which conditions.
  CREATE TABLE message_rules (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    description TEXT,
    metadata TEXT,
    conditions TEXT NOT NULL,
    sites TEXT NOT NULL,
    labels TEXT NOT NULL,
    subjects TEXT NOT NULL,
    after_minutes INTEGER NOT NULL,
    destination_ids TEXT NOT NULL,
    quiet_hours TEXT NOT NULL,
    quiet_critical INTEGER NOT NULL CHECK (quiet_critical IN (0, 1)),
    remind_minutes INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  -- What was wrong, when, and who was told.
  CREATE TABLE condition_history (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    condition TEXT NOT NULL,
    subject TEXT NOT NULL,
    name TEXT NOT NULL,
    site TEXT,
    labels TEXT NOT NULL,
    network TEXT,
    severity TEXT NOT NULL,
    message TEXT NOT NULL,
    remedy TEXT NOT NULL,
    began_at TEXT NOT NULL,
    ended_at TEXT,
    comes_and_goes INTEGER NOT NULL CHECK (comes_and_goes IN (0, 1)),
    settled INTEGER NOT NULL CHECK (settled IN (0, 1)),
    acknowledged_at TEXT,
    acknowledged_by TEXT,
    silenced_until TEXT,
    silenced_by TEXT,
    told TEXT NOT NULL,
    withheld TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX condition_history_unsettled ON condition_history (id) WHERE settled = 0;
  CREATE INDEX condition_history_by_subject ON condition_history (condition, subject, began_at);
  CREATE INDEX condition_history_by_time ON condition_history (created_at);
  CREATE INDEX condition_history_silenced ON condition_history (silenced_until) WHERE silenced_until IS NOT NULL;
  CREATE TABLE sent_messages (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    destination_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX sent_messages_by_destination ON sent_messages (destination_id, created_at);
  `,
  `
  -- The last update of each agent's program, by its authtoken.
  CREATE TABLE agent_updates (
    id TEXT PRIMARY KEY NOT NULL REFERENCES credentials ON DELETE CASCADE,
    created_at TEXT NOT NULL,
    version TEXT NOT NULL,
    -- Null: nothing was heard of it yet.
    result TEXT CHECK (result IN ('confirmed', 'returned')),
    reason TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX agent_updates_by_version ON agent_updates (version);
  `,
  `
  -- What is done with many devices, one after another.
  CREATE TABLE bulk_actions (
    id TEXT PRIMARY KEY NOT NULL,
    created_at TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'cancelled')),
    devices INTEGER NOT NULL,
    labels TEXT,
    remove_labels TEXT,
    filter TEXT,
    by TEXT NOT NULL,
    from_address TEXT,
    finished_at TEXT,
    end_reason TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX bulk_actions_running ON bulk_actions (id) WHERE state = 'running';
  -- Its devices that are left, and those for which it failed.
  CREATE TABLE bulk_action_devices (
    action_id TEXT NOT NULL REFERENCES bulk_actions ON DELETE CASCADE,
    device_id TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Null: it has not had its turn.
    reason TEXT,
    PRIMARY KEY (action_id, device_id)
  ) STRICT, WITHOUT ROWID;
  -- The bulk action that a change is a part of.
  ALTER TABLE audit_log ADD COLUMN part_of TEXT;
  CREATE INDEX audit_log_parts ON audit_log (part_of, id) WHERE part_of IS NOT NULL;
  `,
  `
  -- The port at which clients reach a name that is in no DNS, at the gateway's address.
  CREATE TABLE name_ports (
    name TEXT PRIMARY KEY NOT NULL,
    port INTEGER NOT NULL UNIQUE,
    -- The day of its last use.
    used_on TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- What the agent of a device has said last of its data budget, and when it comes back if it is away for that.
  ALTER TABLE devices ADD COLUMN data_budget TEXT;
  `,
  `
  -- Whether the link of a device is metered, as an operator says (null: nothing), and what it is for its agent.
  ALTER TABLE devices ADD COLUMN metered INTEGER;
  ALTER TABLE devices ADD COLUMN link TEXT;
  `,
  `
  -- The ids of the gateway's CAs that it trusts, as it has last said.
  ALTER TABLE devices ADD COLUMN trusted_cas TEXT;
  `,
  `
  -- Few of many, and asked for every few seconds.
  CREATE INDEX devices_offline ON devices (last_seen_at, id)
    WHERE status = 'enrolled' AND online = 0 AND last_seen_at IS NOT NULL;
  CREATE INDEX devices_with_budget ON devices (id) WHERE data_budget IS NOT NULL;
  `,
];

/** Of a database that this program has written. */
export const SCHEMA_VERSION: number = MIGRATIONS.length;
