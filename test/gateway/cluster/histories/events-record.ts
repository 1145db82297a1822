import { createServer } from 'node:net';
import { onTestFinished } from 'vitest';
import { serving } from '../../../support/loopback.ts';

/** A syslog server that notes which events arrive, and when. */
export class EventsRecord {
  /** By their ids, in milliseconds of `performance.now()`. */
  readonly #arrivals = new Map<string, number[]>();

  private constructor(readonly port: number) {}

  static async start(): Promise<EventsRecord> {
    const server = createServer((socket) => {
      let text = '';
      socket.setEncoding('utf8').on('error', () => {});
      socket.on('data', (piece) => {
        const lines = `${text}${piece}`.split('\n');
        text = lines.pop() ?? '';
        for (const line of lines) record.#arrived(/"event_id":"(\w+)"/.exec(line)?.[1] ?? line);
      });
    });
    const record = new EventsRecord(await serving(server));
    onTestFinished(() => void server.close());
    return record;
  }

  #arrived(id: string): void {
    this.#arrivals.set(id, [...(this.#arrivals.get(id) ?? []), performance.now()]);
  }

  get count(): number {
    return this.#arrivals.size;
  }

  /** Events that came again after a moment. */
  repeatedAfter(from: number): string[] {
    return [...this.#arrivals].flatMap(([id, [, ...again]]) => (again.some((at) => at > from) ? [id] : []));
  }
}
