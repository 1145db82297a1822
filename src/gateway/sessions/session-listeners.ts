import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { ListenerOwner } from './agent-listener.ts';
import type { BoundEndpoint } from './bound-endpoint.ts';
import type { EndpointBinder } from './endpoint-binder.ts';
import type { LabeledTunnel } from './labeled-tunnel.ts';
import type { BindLabeledRequest, BindRequest } from './messages.ts';
import { Refusal } from './refusal.ts';
import type { RpcAnswer } from './rpc.ts';

const MAX_LISTENERS = 10_000;

/** What a session can have bound. */
export type Listener = BoundEndpoint | LabeledTunnel;

/** The endpoints and labelled tunnels of one session. */
export class SessionListeners {
  readonly #owner: ListenerOwner;
  readonly #binder: EndpointBinder;
  readonly #log: Log;
  /** By the agent's names for them. */
  readonly #byId = new Map<string, Listener>();

  constructor(owner: ListenerOwner, binder: EndpointBinder, log: Log) {
    this.#owner = owner;
    this.#binder = binder;
    this.#log = log;
  }

  values(): Iterable<Listener> {
    return this.#byId.values();
  }

  /** @throws {Refusal} when the endpoint cannot be had */
  async bind(request: BindRequest): Promise<RpcAnswer> {
    this.#requireRoom();
    this.#requireFree(request.Id);
    const { endpoint, answer } = await this.#binder.bind(this.#owner, request, (bound) => this.#hold(bound));
    if (this.#byId.get(endpoint.id) !== endpoint) {
      throw new Refusal('ERR_NGROK_741', 'the endpoint was taken offline while it was being bound');
    }
    this.#log.debug({ session: this.#owner.id, url: endpoint.url }, 'endpoint online');
    return this.#answer(endpoint, answer);
  }

  /** @throws {Refusal} when the labels cannot be had */
  bindLabeled(request: BindLabeledRequest): RpcAnswer {
    this.#requireRoom();
    const tunnel = this.#binder.bindLabeled(this.#owner, request);
    this.#log.debug({ session: this.#owner.id, labels: tunnel.labels }, 'labelled tunnel online');
    this.#hold(tunnel);
    return this.#answer(tunnel, { Id: tunnel.id });
  }

  /** Takes one offline; SDKs ask for it more than once, and one that is unknown is as good as unbound. */
  unbind(id: string, reason: Error): void {
    const listener = this.#byId.get(id);
    if (!listener) return;
    this.#byId.delete(id);
    this.#binder.unbind(listener, reason);
    const { publicId } = listener;
    this.#log.debug({ session: this.#owner.id, id: publicId, reason: messageOf(reason) }, 'endpoint offline');
  }

  unbindAll(reason: Error): void {
    for (const id of [...this.#byId.keys()]) this.unbind(id, reason);
  }

  #requireRoom(): void {
    if (this.#byId.size < MAX_LISTENERS) return;
    throw new Refusal('ERR_NGROK_350', `one session can have ${MAX_LISTENERS} endpoints`);
  }

  #requireFree(id: string): void {
    if (this.#byId.has(id)) throw new Refusal('ERR_NGROK_301', 'the id of the endpoint is in use');
  }

  /** From here on it is taken offline with the session, or its right to be there. */
  #hold(listener: Listener): void {
    this.#requireFree(listener.id);
    this.#byId.set(listener.id, listener);
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
