import { setMaxListeners } from 'node:events';
import { setPriority } from 'node:os';
import { messageOf } from '../../src/lib/errors.ts';
import { type Attack, carryOut, type Target } from './attack.ts';
import { HTTP1_ATTACKS, SINGLE_ATTACKS } from './http1-attacks.ts';
import { HTTP2_ATTACKS } from './http2-attacks.ts';
import { KEY_ATTACKS } from './key-attacks.ts';
import { LEAVING_ATTACKS, POLICY_ATTACKS, SINGLE_CLIENT_ATTACKS } from './policy-attacks.ts';
import { STRANGER_ATTACKS, STRANGER_CROWDS } from './stranger-attacks.ts';
import { TENANT_ATTACKS } from './tenant-attacks.ts';
import { UPSTREAM_ATTACKS } from './upstreams.ts';

/** All attackers, in a process of their own. Argument: {@link Order}, as JSON. Prints the results after SIGTERM. */
export interface Order {
  target: Target;
  /** Only attacks whose names contain this. */
  only: string;
  /** Writes why connections were not accepted to the standard error output, each reason once. */
  trace: boolean;
}

function addresses(network: string, count: number): string[] {
  return Array.from({ length: count }, (_, at) => `${network}.${at + 1}`);
}

// Honest clients on the same core measure the gateway, not the attackers' need for processor time.
setPriority(19);
const { target, only, trace } = JSON.parse(process.argv[2] ?? '') as Order;
const clients = [...HTTP1_ATTACKS, ...HTTP2_ATTACKS, ...UPSTREAM_ATTACKS];
const groups: { attacks: Attack[]; from: string[] }[] = [
  { attacks: only === '' ? clients : [...clients, ...SINGLE_ATTACKS], from: addresses('127.0.1', 8) },
  {
    attacks: only === '' ? STRANGER_ATTACKS : [...STRANGER_ATTACKS, ...STRANGER_CROWDS],
    from: addresses('127.0.2', 4),
  },
  { attacks: TENANT_ATTACKS, from: addresses('127.0.3', 2) },
  // Beside all others, more networks than these would only share the few connections of the gateway with honest ones.
  { attacks: [...KEY_ATTACKS, ...POLICY_ATTACKS], from: addresses('127.0.5', only === '' ? 2 : 12) },
  { attacks: SINGLE_CLIENT_ATTACKS, from: addresses('127.0.6', 1) },
  { attacks: LEAVING_ATTACKS, from: addresses('127.0.1', 8) },
];
/** Writes each reason once. */
function traceOf({ name }: Attack): ((error: unknown) => void) | undefined {
  if (!trace) return undefined;
  const seen = new Set<string>();
  return (error) => {
    const line = `${name}: ${messageOf(error)}\n`;
    if (!seen.has(line)) process.stderr.write(line);
    seen.add(line);
  };
}

const stopping = new AbortController();
setMaxListeners(0, stopping.signal);
process.once('SIGTERM', () => stopping.abort());
const running = groups.flatMap(({ attacks, from }) =>
  attacks
    .filter(({ name }) => name.includes(only))
    .map((attack) => carryOut(attack, target, from, stopping.signal, traceOf(attack))),
);
process.stdout.write(`${JSON.stringify(await Promise.all(running))}\n`, () => process.exit());
