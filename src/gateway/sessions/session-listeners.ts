import type { BindLabeledRequest, BindRequest, PatchRequest, UpstreamState } from '../../agent-protocol/messages.ts';
import { type RpcAnswer, RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { type Absence, LEAVING_MS } from '../endpoints/endpoint-registry.ts';
import type { OptionBytes } from './agent-limits.ts';
import type { BoundEndpoint, LabeledTunnel, ListenerOwner } from './agent-listener.ts';
import type { EndpointBinder } from './endpoint-binder.ts';

export type Listener = BoundEndpoint | LabeledTunnel;

export class SessionListeners {
  /** By the agent's ids. */
  readonly #byId = new Map<string, Listener>();
  #pending = 0;
  /** What an SDK has unbound lately. */
  #leaving: readonly { readonly endpoint: BoundEndpoint; readonly at: number }[] = [];
  /** Returns the bytes taken from the authtoken's allowance. */
  readonly #release = new WeakMap<Listener, () => void>();
  /** The same for what the last update took. */
  readonly #releaseUpdate = new WeakMap<Listener, () => void>();

  constructor(
    private readonly owner: ListenerOwner,
    private readonly log: Log,
    private readonly own: {
      binder: EndpointBinder;
      /** Endpoints and labelled tunnels of the session. */
      maxListeners: number;
      optionBytes: OptionBytes;
    },
  ) {}

  get size(): number {
    return this.#byId.size;
  }

  values(): Iterable<Listener> {
    return this.#byId.values();
  }

  /** @param size bytes of the request @throws {RpcError} */
  async bind(request: BindRequest, size: number): Promise<RpcAnswer> {
    this.#requireUnusedId(request.Id);
    const releases = [this.#takeAllowance(size)];
    const release = () => {
      for (const one of releases) one();
    };
    this.#pending += 1;
    const { binder, optionBytes } = this.own;
    const hold = (bound: BoundEndpoint) => {
      releases.push(optionBytes.take(this.owner.credential.id, bound.policy.memory, 0));
      this.#hold(bound, release);
    };
    const { endpoint, answer, isWanted } = await binder
      .bind(this.owner, request, hold)
      .catch((error: unknown) => {
        release();
        throw error;
      })
      .finally(() => {
        this.#pending -= 1;
      });
    if (isWanted) await this.#keepName(endpoint);
    if (this.#byId.get(endpoint.id) !== endpoint) {
      throw new RpcError('ERR_NGROK_741', 'the endpoint was taken offline while it was being bound');
    }
    binder.notePolicy(endpoint);
    this.log.debug({ session: this.owner.id, url: endpoint.url }, 'endpoint online');
    return this.#answer(endpoint, answer);
  }

  /** @param size bytes of the request @throws {RpcError} */
  bindLabeled(request: BindLabeledRequest, size: number): RpcAnswer {
    const { binder } = this.own;
    const release = this.#takeAllowance(size);
    let tunnel: LabeledTunnel;
    try {
      tunnel = binder.bindLabeled(this.owner, request);
    } catch (error) {
      release();
      throw error;
    }
    this.log.debug({ session: this.owner.id, labels: tunnel.labels }, 'labelled tunnel online');
    this.#hold(tunnel, release);
    return this.#answer(tunnel, { Id: tunnel.id });
  }

  /** @param size bytes of the request @throws {RpcError} */
  async update(request: PatchRequest, size: number): Promise<RpcAnswer> {
    const endpoint = this.named(request.TunnelId);
    const { binder, optionBytes } = this.own;
    const releases = [optionBytes.take(this.owner.credential.id, size)];
    const release = () => {
      for (const one of releases) one();
    };
    const chargeMemory = (memory: number) => releases.push(optionBytes.take(this.owner.credential.id, memory, 0));
    try {
      await binder.update(endpoint, request, chargeMemory);
    } catch (error) {
      release();
      throw error;
    }
    this.#releaseUpdate.get(endpoint)?.();
    this.#releaseUpdate.set(endpoint, release);
    binder.notePolicy(endpoint);
    // It went offline meanwhile.
    if (this.#byId.get(endpoint.id) !== endpoint) release();
    this.log.debug({ session: this.owner.id, url: endpoint.url }, 'endpoint changed');
    return { body: {} };
  }

  /** Takes an endpoint offline once it carries nothing; from now on, it gets no further connections. Its agent leaves. */
  drain(id: string, reason: Error): void {
    const listener = this.#byId.get(id);
    if (!listener || 'labels' in listener || listener.lane.streams.size === 0) {
      this.unbind(id, reason, 'lost');
      return;
    }
    listener.lane.drain(() => this.unbind(id, reason));
    this.own.binder.retire(listener, 'lost');
  }

  /** Routes no further connections to any listener; those that are under way go on. Its agent is expected back. */
  retireAll(): void {
    for (const listener of this.#byId.values()) if (!('labels' in listener)) this.own.binder.retire(listener, 'lost');
  }

  /**
   * Takes a listener offline. Unknown ids are ignored: SDKs unbind more than once.
   * @param absence why its agent is expected back; null: it is not
   */
  unbind(id: string, reason: Error, absence: Absence | null = null): void {
    const listener = this.#byId.get(id);
    if (!listener) return;
    const { binder } = this.own;
    this.#byId.delete(id);
    this.#release.get(listener)?.();
    this.#releaseUpdate.get(listener)?.();
    binder.unbind(listener, reason, absence);
    if (!('labels' in listener)) {
      listener.feed?.end();
      if (absence === 'leaving') this.#noteLeaving(listener);
    }
    const { publicId } = listener;
    this.log.debug({ session: this.owner.id, id: publicId, reason: messageOf(reason) }, 'endpoint offline');
  }

  /** The session is lost: its agent is expected back, also for what it has unbound right before. */
  lose(reason: Error): void {
    for (const id of [...this.#byId.keys()]) this.unbind(id, reason, 'lost');
    const since = performance.now() - LEAVING_MS;
    for (const { endpoint, at } of this.#leaving) if (at > since) this.own.binder.expect(endpoint);
  }

  #noteLeaving(endpoint: BoundEndpoint): void {
    const at = performance.now();
    this.#leaving = [...this.#leaving.filter((one) => one.at > at - LEAVING_MS), { endpoint, at }];
  }

  /** Unknown ids are ignored: the endpoint may have gone offline meanwhile. */
  noteUpstream({ Id, Down }: UpstreamState): void {
    this.#byId.get(Id)?.noteUpstream(Down);
  }

  /** The endpoint with this id of the agent's, of the management API, or of its tunnel. @throws {RpcError} */
  named(id: string): BoundEndpoint {
    for (const listener of this.#byId.values()) {
      const isNamed = [listener.id, listener.publicId, listener.tunnelId].includes(id);
      if (isNamed && !('labels' in listener)) return listener;
    }
    throw new RpcError('ERR_NGROK_301', 'no endpoint of this session has this id');
  }

  /** Only names that are online are kept: a bind that is refused must not take one from anybody. */
  async #keepName(endpoint: BoundEndpoint): Promise<void> {
    try {
      await this.owner.credential.keep(endpoint.binding);
    } catch (error) {
      if (this.#byId.get(endpoint.id) === endpoint)
        this.unbind(endpoint.id, error instanceof Error ? error : new Error(messageOf(error)));
      throw error;
    }
  }

  #takeAllowance(size: number): () => void {
    const { maxListeners, optionBytes } = this.own;
    if (this.#byId.size + this.#pending >= maxListeners) {
      throw new RpcError('ERR_NGROK_350', `endpoint limit reached: one session can have ${maxListeners} endpoints`);
    }
    return optionBytes.take(this.owner.credential.id, size);
  }

  #requireUnusedId(id: string): void {
    if (this.#byId.has(id)) throw new RpcError('ERR_NGROK_301', 'the endpoint id is already in use in this session');
  }

  /** From here on the listener goes offline with the session, or when its permission is revoked. */
  #hold(listener: Listener, release: () => void): void {
    this.#requireUnusedId(listener.id);
    this.#byId.set(listener.id, listener);
    this.#release.set(listener, release);
  }

  #answer(listener: Listener, answer: object): RpcAnswer {
    return { body: answer, consumed: () => this.#open(listener) };
  }

  /** The agent has registered the listener: queued streams can be opened. */
  #open(listener: Listener): void {
    if (this.#byId.get(listener.id) !== listener) return;
    listener.lane.ready = true;
    this.owner.gate.admit();
  }
}
