import { startGateway } from '../../../../src/gateway/gateway.ts';
import type { GatewayOptions } from '../../../../src/gateway/gateway-options.ts';
import { silentLog } from '../../../support/silent-log.ts';

/** What its parent tells it: by how many milliseconds its clock goes wrong. */
export interface ClockJump {
  byMs: number;
}

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

await startGateway({ ...(JSON.parse(options) as GatewayOptions), log: silentLog });
process.send?.('serving');
