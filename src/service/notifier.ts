import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { messageOf } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import type { ServiceManagerSettings } from '../settings/service-manager-settings.ts';

const SEND_DEADLINE_MS = 10_000;

/**
 * Sends notifications to systemd in order (sd_notify(3)). Node does not support datagram unix sockets, so each one starts
 * a systemd-notify process, which takes 3 ms of this process's time on a PC.
 */
export class Notifier {
  #last: Promise<void> = Promise.resolve();

  constructor(
    private readonly settings: ServiceManagerSettings,
    private readonly log: Log,
  ) {}

  /**
   * Never rejects: failures are logged.
   *
   * @param assignments for example `READY=1`
   */
  send(...assignments: string[]): Promise<void> {
    this.#last = this.#last.then(() => this.#run(assignments));
    return this.#last;
  }

  async #run(assignments: string[]): Promise<void> {
    const env = { PATH: '/usr/local/bin:/usr/bin:/bin', NOTIFY_SOCKET: this.settings.socket };
    try {
      await promisify(execFile)('systemd-notify', assignments, { env, timeout: SEND_DEADLINE_MS });
    } catch (error) {
      this.log.error(
        { reason: messageOf(error), assignments },
        'systemd notification failed; check that systemd-notify is installed',
      );
    }
  }
}
