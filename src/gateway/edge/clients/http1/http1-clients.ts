import type { Socket } from 'node:net';
import type { Log } from '../../../../lib/log/log.ts';
import type { MemoryBudget } from '../../../../lib/memory-budget.ts';
import { DeadlineSweep } from '../../../../lib/time/deadline-sweep.ts';
import type { TrafficCounters } from '../../../metrics/traffic-counters.ts';
import { type HttpLimits, sweepInterval } from '../../http/http-limits.ts';
import { MEMORY_SWEEP_MS } from '../client-memory.ts';
import { Http1Client, type Http1Handler } from './http1-client.ts';

export interface Http1ClientsOptions {
  limits: HttpLimits;
  memory: MemoryBudget;
  counters: TrafficCounters;
  log: Log;
}

/** The connections to one public port that speak HTTP/1. */
export class Http1Clients implements Iterable<Http1Client> {
  readonly #keepAlive: string;
  readonly #clients: DeadlineSweep<Http1Client>;
  readonly #onDone = (client: Http1Client): void => void this.#clients.delete(client);

  constructor(private readonly options: Http1ClientsOptions) {
    this.#clients = new DeadlineSweep(Math.min(MEMORY_SWEEP_MS, sweepInterval(options.limits)));
    const seconds = Math.floor(options.limits.keepAliveTimeout / 1000);
    this.#keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${seconds}\r\n`;
  }

  /** Takes over a connection; `handler` serves its requests. */
  accept(socket: Socket, handler: Http1Handler): void {
    const { limits, memory, counters, log } = this.options;
    const options = {
      limits,
      keepAlive: this.#keepAlive,
      handler,
      onDone: this.#onDone,
      memory,
      counters,
      log,
    };
    this.#clients.add(new Http1Client(socket, options));
  }

  [Symbol.iterator](): Iterator<Http1Client> {
    return this.#clients[Symbol.iterator]();
  }
}
