import { readdirSync, readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { Counter, Gauge, type Registry } from 'prom-client';

/**
 * Adds the usual metrics of a process, under the names that prom-client uses. Each is read when it is scraped:
 * prom-client's own watch the event loop 100 times a second, and an idle device should sleep.
 */
export function addProcessMetrics(registry: Registry): void {
  const registers = [registry];
  for (const [name, help, seconds] of CPU_TIMES) {
    new Counter({
      name,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(seconds(process.cpuUsage()));
      },
    });
  }
  for (const [name, help, value] of process.platform === 'linux' ? [...GAUGES, ...LINUX_GAUGES] : GAUGES) {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value());
      },
    });
  }
  addUtilization(registry);
  new Gauge({ name: 'nodejs_version_info', help: 'Node.js version.', labelNames: ['version'], registers }).set(
    { version: process.version },
    1,
  );
}

const MICROSECONDS = 1e6;

const CPU_TIMES: readonly [name: string, help: string, seconds: (usage: NodeJS.CpuUsage) => number][] = [
  ['process_cpu_user_seconds_total', 'User CPU time in seconds.', ({ user }) => user / MICROSECONDS],
  ['process_cpu_system_seconds_total', 'System CPU time in seconds.', ({ system }) => system / MICROSECONDS],
  [
    'process_cpu_seconds_total',
    'User and system CPU time in seconds.',
    ({ user, system }) => (user + system) / MICROSECONDS,
  ],
];

const GAUGES: readonly [name: string, help: string, value: () => number][] = [
  ['process_start_time_seconds', 'Start of the process in Unix seconds.', () => performance.timeOrigin / 1000],
  ['process_resident_memory_bytes', 'Resident memory in bytes.', () => process.memoryUsage.rss()],
  ['nodejs_heap_size_total_bytes', 'Size of the heap in bytes.', () => process.memoryUsage().heapTotal],
  ['nodejs_heap_size_used_bytes', 'Used part of the heap in bytes.', () => process.memoryUsage().heapUsed],
  ['nodejs_external_memory_bytes', 'Memory outside of the heap in bytes.', () => process.memoryUsage().external],
  ['nodejs_active_resources_total', 'Active resources.', () => process.getActiveResourcesInfo().length],
];

const LINUX_GAUGES: typeof GAUGES = [
  // Without the descriptor that reads the folder.
  ['process_open_fds', 'Open file descriptors.', () => readdirSync('/proc/self/fd').length - 1],
  ['process_max_fds', 'Limit on open file descriptors.', descriptorLimit],
];

/** Since the last scrape, which says more than an average over days. */
function addUtilization(registry: Registry): void {
  let last = performance.eventLoopUtilization();
  new Gauge({
    name: 'nodejs_eventloop_utilization',
    help: 'Share of time the event loop was busy since the last scrape.',
    registers: [registry],
    collect() {
      const now = performance.eventLoopUtilization();
      this.set(performance.eventLoopUtilization(now, last).utilization);
      last = now;
    },
  });
}

/** The number of file descriptors that this process may have open; infinite where the system does not say. */
export function descriptorLimit(): number {
  if (process.platform !== 'linux') return Number.POSITIVE_INFINITY;
  const [, limit] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
  return limit === undefined ? Number.POSITIVE_INFINITY : Number(limit);
}
