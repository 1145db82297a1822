/** What is said of a kind of condition, wherever it is said: pages, messages and the rules for Prometheus. */
interface ConditionText {
  /** `critical`: it stops traffic or changes, or soon will. */
  readonly severity: 'critical' | 'warning';
  /** What is wrong, without its details. */
  readonly title: string;
  readonly remedy: string;
  /** Minutes after which Prometheus sounds an alarm. */
  readonly minutes: number;
}

/** Everything that can be wrong with a gateway, or with what is behind it; the worst first. */
export const CONDITIONS = {
  disk: {
    severity: 'critical',
    title: 'The disk is nearly full, or cannot be written',
    remedy: 'Free space on the disk of DATA_DIR, then restart the gateway if it says so.',
    minutes: 5,
  },
  shared_database: {
    severity: 'critical',
    title: 'The shared database cannot be used',
    remedy: 'Check PostgreSQL and the network; all changes are rejected until then.',
    minutes: 5,
  },
  commits_lost: {
    severity: 'critical',
    title: 'The shared database was put back to an older state',
    remedy: 'Make the changes again that it lacks; the dashboard says how many.',
    minutes: 1,
  },
  no_primary: {
    severity: 'critical',
    title: 'No gateway is the primary node',
    remedy: 'Start a gateway that is not draining. Certificates are not renewed, and events wait.',
    minutes: 5,
  },
  own_certificate: {
    severity: 'critical',
    title: "A certificate of the gateway's own names needs attention",
    remedy: 'device-agent gateway doctor says why it is not renewed.',
    minutes: 60,
  },
  file_descriptors: {
    severity: 'critical',
    title: 'The gateway has no file descriptors left',
    remedy: 'Raise the limit of open files of the service (LimitNOFILE=), or of this machine.',
    minutes: 1,
  },
  server_errors: {
    severity: 'critical',
    title: 'Many responses are errors (5xx)',
    remedy: 'The dashboard lists the endpoints with errors; start their upstreams.',
    minutes: 5,
  },
  device_offline: {
    severity: 'warning',
    title: 'A device is offline',
    remedy: 'Check its power and its network; the dashboard says when it was last online, and from where.',
    minutes: 10,
  },
  data_budget: {
    severity: 'warning',
    title: 'A device has nearly used up its data budget',
    remedy:
      'Look at what uses its tunnels, or raise AGENT_DATA_BUDGET; at 95 %, they answer 503 until the period ends.',
    minutes: 5,
  },
  shared_database_detour: {
    severity: 'warning',
    title: 'A gateway reaches the shared database only through another one',
    remedy: 'Check the network between this gateway and PostgreSQL, and GATEWAY_DATABASE_URL.',
    minutes: 5,
  },
  upstream: {
    severity: 'warning',
    title: 'An upstream refuses connections, or answers 5xx',
    remedy: 'Start the upstream, or change what the tunnel forwards to; device-agent doctor on the device says more.',
    minutes: 5,
  },
  domain_certificate: {
    severity: 'warning',
    title: 'A certificate of a domain needs attention',
    remedy: 'device-agent gateway certificates says why it is not renewed; replace an uploaded one with a new upload.',
    minutes: 60,
  },
  gateway_silent: {
    severity: 'warning',
    title: 'A gateway is silent',
    remedy: 'Check that it runs and reaches the shared database; device-agent gateway nodes remove forgets a lost one.',
    minutes: 3,
  },
  update_stopped: {
    severity: 'warning',
    title: 'Automatic updates of devices are stopped',
    remedy: 'Look at one of the devices; then device-agent gateway releases resume, or stop for good.',
    minutes: 5,
  },
  release: {
    severity: 'warning',
    title: 'A release for devices cannot be installed',
    remedy: 'device-agent gateway releases says which one, and why.',
    minutes: 60,
  },
  event_destination: {
    severity: 'warning',
    title: 'A destination does not take its events',
    remedy: 'Fix the receiver, or change the target; events wait until then.',
    minutes: 10,
  },
  events_lost: {
    severity: 'warning',
    title: 'Events were lost',
    remedy: 'Leave out types of events in the subscriptions that you do not need.',
    minutes: 1,
  },
  backup: {
    severity: 'warning',
    title: 'The last backup is too old',
    remedy: 'See "backup failed" in the log of the gateway, and the folder in GATEWAY_BACKUPS.',
    minutes: 60,
  },
} as const satisfies Record<string, ConditionText>;

export type ConditionId = keyof typeof CONDITIONS;
export const CONDITION_IDS = Object.keys(CONDITIONS) as readonly ConditionId[];
