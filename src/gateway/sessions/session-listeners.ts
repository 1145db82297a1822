import type { BindLabeledRequest, BindRequest } from '../../agent-protocol/messages.ts';
import type { RpcAnswer } from '../../agent-protocol/rpc.ts';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { OptionBytes } from './agent-limits.ts';
import type { ListenerOwner } from './agent-listener.ts';
import type { BoundEndpoint } from './bound-endpoint.ts';
import type { EndpointBinder } from './endpoint-binder.ts';
import type { LabeledTunnel } from './labeled-tunnel.ts';

/** What a session can have bound. */
export type Listener = BoundEndpoint | LabeledTunnel;

export interface SessionListenersDeps {
  binder: EndpointBinder;
  maxListeners: number;
  optionBytes: OptionBytes;
  log: Log;
}

/** The endpoints and labelled tunnels of one session. */
export class SessionListeners {
  readonly #owner: ListenerOwner;
  readonly #deps: SessionListenersDeps;
  /** By the agent's names for them. */
  readonly #byId = new Map<string, Listener>();
  /** Those that are still being bound. */
  #pending = 0;
  /** What gives back the bytes of those that are bound. */
  readonly #release = new WeakMap<Listener, () => void>();

  constructor(owner: ListenerOwner, deps: SessionListenersDeps) {
    this.#owner = owner;
    this.#deps = deps;
  }

  values(): Iterable<Listener> {
    return this.#byId.values();
  }

  /**
   * @param size bytes of the request
   * @throws {RpcError} when the endpoint cannot be had
   */
  async bind(request: BindRequest, size: number): Promise<RpcAnswer> {
    this.#requireFree(request.Id);
    const release = this.#takeRoom(size);
    this.#pending += 1;
    const { binder, log } = this.#deps;
    const hold = (bound: BoundEndpoint) => this.#hold(bound, release);
    const { endpoint, answer } = await binder
      .bind(this.#owner, request, hold)
      .catch((error: unknown) => {
        release();
        throw error;
      })
      .finally(() => {
        this.#pending -= 1;
      });
    if (this.#byId.get(endpoint.id) !== endpoint) {
      throw new RpcError('ERR_NGROK_741', 'the endpoint was taken offline while it was being bound');
    }
    log.debug({ session: this.#owner.id, url: endpoint.url }, 'endpoint online');
    return this.#answer(endpoint, answer);
  }

  /**
   * @param size bytes of the request
   * @throws {RpcError} when the labels cannot be had
   */
  bindLabeled(request: BindLabeledRequest, size: number): RpcAnswer {
    const { binder, log } = this.#deps;
    const release = this.#takeRoom(size);
    let tunnel: LabeledTunnel;
    try {
      tunnel = binder.bindLabeled(this.#owner, request);
    } catch (error) {
      release();
      throw error;
    }
    log.debug({ session: this.#owner.id, labels: tunnel.labels }, 'labelled tunnel online');
    this.#hold(tunnel, release);
    return this.#answer(tunnel, { Id: tunnel.id });
  }

  /** Takes one offline; SDKs ask for it more than once, and one that is unknown is as good as unbound. */
  unbind(id: string, reason: Error): void {
    const listener = this.#byId.get(id);
    if (!listener) return;
    const { binder, log } = this.#deps;
    this.#byId.delete(id);
    this.#release.get(listener)?.();
    binder.unbind(listener, reason);
    const { publicId } = listener;
    log.debug({ session: this.#owner.id, id: publicId, reason: messageOf(reason) }, 'endpoint offline');
  }

  unbindAll(reason: Error): void {
    for (const id of [...this.#byId.keys()]) this.unbind(id, reason);
  }

  #takeRoom(size: number): () => void {
    const { maxListeners, optionBytes } = this.#deps;
    if (this.#byId.size + this.#pending >= maxListeners) {
      throw new RpcError('ERR_NGROK_350', `one session can have ${maxListeners} endpoints`);
    }
    return optionBytes.take(this.#owner.credential.id, size);
  }

  #requireFree(id: string): void {
    if (this.#byId.has(id)) throw new RpcError('ERR_NGROK_301', 'the id of the endpoint is in use');
  }

  /** From here on it is taken offline with the session, or its right to be there. */
  #hold(listener: Listener, release: () => void): void {
    this.#requireFree(listener.id);
    this.#byId.set(listener.id, listener);
    this.#release.set(listener, release);
  }

  #answer(listener: Listener, answer: object): RpcAnswer {
    return { body: answer, consumed: () => this.#open(listener) };
  }

  /** The agent has registered its listener: what was held back until now may go. */
  #open(listener: Listener): void {
    if (this.#byId.get(listener.id) !== listener) return;
    listener.lane.ready = true;
    this.#owner.gate.admit();
  }
}
