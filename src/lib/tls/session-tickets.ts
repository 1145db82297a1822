import { hash } from 'node:crypto';
import type { SecureContextOptions } from 'node:tls';
import type { SecretsBox } from '../secrets-box.ts';

/** Keys seal for so long; a device makes one whole handshake more when they change. */
const PERIOD_MS = 7 * 86_400_000;
const LIFETIME_S = 2 * 86_400;

/**
 * Session tickets of a TLS server for peers that come back again and again, as devices do: they resume TLS with a third of the
 * bytes, also after a restart of the server, and at another one with the same box. With TLS 1.3, each connection has a
 * secret of its own all the same. Nothing is ever sent early.
 */
export class SessionTickets {
  constructor(
    private readonly box: Pick<SecretsBox, 'keyFor'>,
    private readonly now: () => number = Date.now,
  ) {}

  /** Changes with the time, and with the box's key: what that has sealed is not resumed any more. A secret. */
  get epoch(): string {
    return this.box.keyFor(`agent tickets ${Math.floor(this.now() / PERIOD_MS)}`);
  }

  get options(): SecureContextOptions {
    const ticketKeys = hash('sha384', this.epoch, 'buffer');
    return { ticketKeys, sessionTimeout: LIFETIME_S };
  }
}
