/** What is said of a kind of condition, wherever it is said: pages, messages and the rules for Prometheus. */
interface ConditionText {
  /** `critical`: it stops traffic or changes, or soon will. */
  readonly severity: 'critical' | 'warning';
  /** What is wrong, without its details. */
  readonly title: string;
  /** What to do, where nothing more exact is known: lower-case start, no full stop. */
  readonly remedy: string;
  /** Minutes after which Prometheus sounds an alarm. */
  readonly minutes: number;
}

/** Everything that can be wrong with a gateway, or with what is behind it; the worst first. */
export const CONDITIONS = {
  disk: {
    severity: 'critical',
    title: 'The disk is nearly full, or cannot be written',
    remedy: 'free space on the disk of DATA_DIR, then restart the gateway if it says so',
    minutes: 5,
  },
  shared_database: {
    severity: 'critical',
    title: 'The shared database cannot be used',
    remedy:
      'check PostgreSQL and the network, device-agent gateway doctor says more; all changes are rejected until then',
    minutes: 5,
  },
  commits_lost: {
    severity: 'critical',
    title: 'The shared database was put back to an older state',
    remedy: 'make the changes again that it lacks; synchronous replication prevents that a standby lacks some',
    minutes: 1,
  },
  encryption_key: {
    severity: 'critical',
    title: 'The encryption key does not decrypt what is in the database',
    remedy:
      'restore that key, or, if it is lost for good, stop the gateway and run device-agent gateway keys replace-lost',
    minutes: 5,
  },
  no_primary: {
    severity: 'critical',
    title: 'No gateway is the primary node',
    remedy: 'start a gateway that is not draining; the log says "primary node not chosen" where one cannot become it',
    minutes: 5,
  },
  own_certificate: {
    severity: 'critical',
    title: "A certificate of the gateway's own names needs attention",
    remedy: 'run device-agent gateway doctor, which says why it is not renewed',
    minutes: 60,
  },
  file_descriptors: {
    severity: 'critical',
    title: 'The gateway has no file descriptors left',
    remedy: 'raise the limit of open files of the service (LimitNOFILE=), or of this machine',
    minutes: 1,
  },
  server_errors: {
    severity: 'critical',
    title: 'Many responses are errors (5xx)',
    remedy: 'the endpoints with errors are in the list of endpoints; start their upstreams',
    minutes: 5,
  },
  device_offline: {
    severity: 'warning',
    title: 'A device is offline',
    remedy: 'check its power and its network; the dashboard says when it was last online, and from where',
    minutes: 10,
  },
  data_budget: {
    severity: 'warning',
    title: 'A device has nearly used up its data budget',
    remedy: 'look at what uses its tunnels, or raise AGENT_DATA_BUDGET; at 95 %, they answer 503 until the period ends',
    minutes: 5,
  },
  shared_database_detour: {
    severity: 'warning',
    title: 'A gateway reaches the shared database only through another one',
    remedy: 'check the network between this gateway and PostgreSQL, and GATEWAY_DATABASE_URL',
    minutes: 5,
  },
  upstream: {
    severity: 'warning',
    title: 'An upstream refuses connections, or answers 5xx',
    remedy: 'start the upstream, or change what the tunnel forwards to; device-agent doctor on the device says more',
    minutes: 5,
  },
  latency: {
    severity: 'warning',
    title: 'An endpoint answers slowly',
    remedy: 'look at the load of the upstream and at the link of its device; GATEWAY_LATENCY_LIMIT says what is slow',
    minutes: 5,
  },
  endpoint_unreachable: {
    severity: 'warning',
    title: 'An endpoint cannot be reached as clients do',
    remedy:
      'mend the stage that broke, which the dashboard and GET /endpoints name: name, connection, certificate, policy, session or upstream',
    minutes: 3,
  },
  domain_certificate: {
    severity: 'warning',
    title: 'A certificate of a domain needs attention',
    remedy:
      'run device-agent gateway certificates, which says why it is not renewed; replace an uploaded one with a new upload',
    minutes: 60,
  },
  client_authority: {
    severity: 'warning',
    title: 'A CA of client certificates ends soon, or has ended',
    remedy:
      'upload the CA that follows it, and name both in the TLS edges and policies that use it, until the clients have other certificates',
    minutes: 60,
  },
  ca_change: {
    severity: 'warning',
    title: "Devices do not trust the gateway's next CA yet",
    remedy:
      'bring them online for a day, on a metered link for a week, or have them join again; device-agent gateway ca lists them, and moves the date with rotate --until',
    minutes: 60,
  },
  own_ca: {
    severity: 'warning',
    title: "The gateway's own CA ends, or copies of its ca.pem do",
    remedy:
      "see the log of the gateway for why it is not renewed; give clients with a copy the gateway's present ca.pem, devices follow automatically",
    minutes: 60,
  },
  gateway_silent: {
    severity: 'warning',
    title: 'A gateway is silent',
    remedy: 'check that it runs and reaches the shared database; device-agent gateway nodes remove forgets a lost one',
    minutes: 3,
  },
  update_stopped: {
    severity: 'warning',
    title: 'Automatic updates of devices are stopped',
    remedy:
      'look at one of the devices (journalctl -u device-agent-update); then device-agent gateway releases resume, or stop for good',
    minutes: 5,
  },
  update_failed: {
    severity: 'warning',
    title: 'An update failed',
    remedy:
      'see journalctl -u device-agent-update on that machine; then offer a newer release, or stop this one; device-agent update --to tries a version that was given up',
    minutes: 5,
  },
  release: {
    severity: 'warning',
    title: 'A release for devices cannot be installed',
    remedy: 'run device-agent gateway releases, which says which one, and why',
    minutes: 60,
  },
  event_destination: {
    severity: 'warning',
    title: 'A destination does not take its events',
    remedy: 'fix the receiver, or change the target; events wait until then',
    minutes: 10,
  },
  events_lost: {
    severity: 'warning',
    title: 'Events were lost',
    remedy: 'leave out types of events in the subscriptions that you do not need; see the log of the gateway',
    minutes: 1,
  },
  backup: {
    severity: 'warning',
    title: 'The last backup is too old',
    remedy: 'see "backup failed" in the log of the gateway, and the folder in GATEWAY_BACKUPS',
    minutes: 60,
  },
} as const satisfies Record<string, ConditionText>;

export type ConditionId = keyof typeof CONDITIONS;
export const CONDITION_IDS = Object.keys(CONDITIONS) as readonly ConditionId[];
