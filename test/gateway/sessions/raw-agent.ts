import { expect } from 'vitest';
import { StreamType, streamPrefix } from '../../../src/agent-protocol/messages.ts';
import { MuxPeer } from '../../agent-protocol/mux-peer.ts';
import { SessionGateway } from './session-gateway.ts';

/** The body of an AUTH request. */
export function auth(gateway: SessionGateway, clientId = '') {
  return { Version: ['3', '2'], ClientId: clientId, Extra: { AuthToken: gateway.authtoken, Metadata: 'm' } };
}

/** A hand-written agent, for requests that no SDK sends. */
export async function rawAgent(gateway: SessionGateway) {
  const peer = new MuxPeer(await gateway.rawClient());
  let nextId = 3;
  /** Opens a stream, without a type if null, and returns its id. */
  function open(type: number | null, body: string): number {
    const id = nextId;
    nextId += 2;
    peer.sendData(id, type === null ? '' : streamPrefix(type), { syn: true });
    peer.sendData(id, body);
    return id;
  }
  async function callText(type: number, body: string): Promise<Record<string, unknown>> {
    const id = open(type, body);
    await peer.until(() => peer.frames.some((one) => one.id === id && one.fin));
    peer.sendData(id, '', { fin: true });
    return JSON.parse(peer.received(id).toString());
  }
  /** The header of the first connection that the gateway opens. */
  async function proxyHeader(): Promise<unknown> {
    const isComplete = (bytes: Buffer) => bytes.length > 12 && bytes.length >= 12 + Number(bytes.readBigInt64LE(4));
    await peer.until(() => isComplete(peer.received(2)));
    const bytes = peer.received(2);
    expect(bytes.readUInt32BE(0)).toBe(3);
    return JSON.parse(bytes.subarray(12, 12 + Number(bytes.readBigInt64LE(4))).toString());
  }
  return {
    peer,
    open,
    proxyHeader,
    callText,
    call: (type: number, body: object) => callText(type, JSON.stringify(body)),
  };
}

/** A gateway, and such an agent with a session there. */
export async function rawSession(options: Parameters<typeof SessionGateway.start>[2] = {}) {
  const gateway = await SessionGateway.start(0, undefined, options);
  const agent = await rawAgent(gateway);
  const session = await agent.call(StreamType.auth, auth(gateway));
  return { gateway, agent, session };
}
