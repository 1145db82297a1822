import { EventEmitter } from 'node:events';
import type { Log } from '../../lib/log/log.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import type { Store } from '../store/store.ts';
import type { TlsEdgeRow } from '../store/tls-edges.ts';

export interface ServedEdge {
  readonly row: TlsEdgeRow;
  /** Perhaps a wildcard. */
  readonly host: string;
  readonly port: number;
}

/** The TLS edges by hostport, in memory: routing asks no database. Emits `changed` before a change is answered. */
export class TlsEdgeIndex extends EventEmitter<{ changed: [] }> {
  readonly #store: Pick<Store, 'database' | 'tlsEdges'>;
  readonly #rows = new Map<string, TlsEdgeRow>();
  readonly #served = new Map<string, ServedEdge>();
  readonly #hosts = new Map<string, number>();

  constructor(store: Pick<Store, 'database' | 'tlsEdges'>, log: Log) {
    super();
    this.#store = store;
    store.tlsEdges.takeTouched();
    for (const row of store.tlsEdges.where('id > ?', [''])) this.#add(row);
    store.database.onCommit(() => {
      try {
        this.#refresh();
      } catch (err) {
        log.error({ err }, 'TLS edges reload failed; keeping the previous ones');
      }
    });
  }

  /** The ports are tried in order. An exact host takes precedence, then the most specific wildcard. */
  find(name: string, ports: readonly number[]): ServedEdge | undefined {
    for (const host of coveringNames(name)) {
      const served = this.at(host, ports);
      if (served) return served;
    }
    return undefined;
  }

  /** The edge with exactly this name or wildcard. */
  at(host: string, ports: readonly number[]): ServedEdge | undefined {
    if (!this.#hosts.has(host)) return undefined;
    for (const port of ports) {
      const served = this.#served.get(`${host}:${port}`);
      if (served) return served;
    }
    return undefined;
  }

  hasName(name: string): boolean {
    return coveringNames(name).some((host) => this.#hosts.has(host));
  }

  served(): Iterable<ServedEdge> {
    return this.#served.values();
  }

  #refresh(): void {
    const touched = this.#store.tlsEdges.takeTouched();
    if (touched.size === 0) return;
    const rows = [...touched].map((id): [string, TlsEdgeRow | null] => [id, this.#store.tlsEdges.get(id)]);
    // A hostport may have moved from one edge to another.
    for (const [id] of rows) this.#remove(id);
    for (const [, row] of rows) if (row) this.#add(row);
    this.emit('changed');
  }

  #add(row: TlsEdgeRow): void {
    this.#rows.set(row.id, row);
    for (const hostport of row.hostports ?? []) {
      const served = { row, ...splitHostport(hostport) };
      this.#served.set(hostport, served);
      this.#hosts.set(served.host, (this.#hosts.get(served.host) ?? 0) + 1);
    }
  }

  #remove(id: string): void {
    for (const hostport of this.#rows.get(id)?.hostports ?? []) {
      const { host } = splitHostport(hostport);
      const left = (this.#hosts.get(host) ?? 0) - 1;
      if (left > 0) this.#hosts.set(host, left);
      else this.#hosts.delete(host);
      this.#served.delete(hostport);
    }
    this.#rows.delete(id);
  }
}

function splitHostport(hostport: string): { host: string; port: number } {
  const colon = hostport.lastIndexOf(':');
  return { host: hostport.slice(0, colon), port: Number(hostport.slice(colon + 1)) };
}
