import { pino } from 'pino';
import type { GatewayOptions } from '../../../../src/gateway/context/gateway-options.ts';
import { startGateway } from '../../../../src/gateway/gateway.ts';
import { cidrList } from '../../../../src/lib/network/ip-address.ts';

/** What its parent tells it: by how many milliseconds its clock goes wrong. */
export interface ClockJump {
  byMs: number;
}

/** What it tells its parent: that it serves, a warning of its log, or why it ends. */
export type NodeNews = { serves: true } | { warning: string } | { ends: string };

/** A gateway of a history, in a process that can be stopped, killed and given a wrong clock. Argument: its options as JSON. */
const [, , options = ''] = process.argv;
const RightDate = Date;
let byMs = 0;

globalThis.Date = class extends RightDate {
  constructor(...parts: unknown[]) {
    if (parts.length === 0) super(RightDate.now() + byMs);
    else super(...(parts as [string]));
  }

  static override now(): number {
    return RightDate.now() + byMs;
  }
} as DateConstructor;

process.on('message', (jump: ClockJump) => {
  byMs += jump.byMs;
});
process.on('disconnect', () => process.exit());

const tell = (news: NodeNews, told = () => {}) => process.send?.(news, told);
const end = (reason: string) => tell({ ends: reason }, () => process.exit(1));
const write = (line: string) => tell({ warning: JSON.parse(line).msg });
const log = pino({ level: 'warn' }, { write });
const onRemoved = (reason: string | null) => end(`removed: ${reason}`);
try {
  const policyNetworks = cidrList(['127.0.0.0/8']);
  const gateway = await startGateway({ ...(JSON.parse(options) as GatewayOptions), policyNetworks, log, onRemoved });
  process.once('SIGTERM', () => void gateway.close().then(() => process.exit()));
  tell({ serves: true });
} catch (error) {
  end((error as Error).message);
}
