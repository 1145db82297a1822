import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { connectToGateway, type GatewaySocketOptions } from '../gateway-socket.ts';

export interface SdkServer {
  /** `127.0.0.1:port` */
  address: string;
  cert: string;
}

/** Below the deadline of a session (20 s), so that the reason is known by then. */
const CONNECT_MS = 15_000;
/** One session, and attempts that are ending. */
const MAX_CONNECTIONS = 16;
const LINGER_MS = 5_000;

/**
 * Connects the SDK to a gateway through a proxy, at an IPv6 address or at a name below localhost, none of which it supports
 * (1.7.0), at several addresses, while this machine's clock is wrong, and where the gateway shows a chain that the pinned CA
 * accepts only to those who ask for it. The SDK connects to a port on loopback and trusts the certificate there, which is as
 * short-lived as this object. The relay connects to the gateway and verifies its certificate like the SDK would.
 *
 * It only forwards to that one gateway, for any program on this machine that connects to it.
 */
export class GatewayRelay {
  #listening: Promise<SdkServer> | null = null;
  #server: Server | null = null;
  #failure: string | null = null;
  readonly #clients = new Set<Socket>();

  constructor(
    private readonly options: Pick<GatewaySocketOptions, 'address' | 'dial' | 'time'> & {
      /** The CAs that verify the gateway, read for each connection. */
      trust: () => Pick<GatewaySocketOptions, 'ca' | 'protocols'>;
      log: Log;
      /** How long the gateway gets to close a connection that the SDK has ended. */
      lingerMs?: number;
    },
  ) {}

  /** Why the last connection to the gateway failed; null when it succeeded. */
  get failure(): string | null {
    return this.#failure;
  }

  /** Opens the port at the first call and keeps it. */
  open(): Promise<SdkServer> {
    this.#listening ??= this.#listen().catch((error: unknown) => {
      this.#listening = null; // the next session tries again
      throw error;
    });
    return this.#listening;
  }

  close(): void {
    this.#server?.close();
    for (const client of this.#clients) client.destroy();
  }

  async #listen(): Promise<SdkServer> {
    const { cert, key } = makeRelayCertificate();
    const identity = createSecureContext({ cert, key });
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true, noDelay: true }, (client) => {
      this.#clients.add(client);
      client.once('close', () => this.#clients.delete(client));
      client.on('error', () => client.destroy());
      void this.#serve(client, identity);
    });
    server.maxConnections = MAX_CONNECTIONS;
    this.#server = server;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    server.on('error', (err) => this.options.log.error({ err }, 'gateway relay cannot accept connections'));
    return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, cert };
  }

  /** The SDK's handshake waits for the gateway's, so that both succeed or both fail. */
  async #serve(client: Socket, identity: SecureContext): Promise<void> {
    const over = new AbortController();
    client.once('close', () => over.abort());
    try {
      const connecting = connectToGateway({ ...this.options, ...this.options.trust() }, over.signal);
      const gateway = await withDeadline(connecting, 'connecting', CONNECT_MS, (late) => void late.destroy());
      this.#failure = null;
      if (client.destroyed) return void gateway.destroy();
      const sdk = new TLSSocket(client, { isServer: true, secureContext: identity });
      pipeBoth(sdk, gateway, this.options.lingerMs ?? LINGER_MS);
    } catch (error) {
      if (!over.signal.aborted) this.#failure = messageOf(error);
      over.abort();
      client.destroy();
    }
  }
}

/** Pipes both ways; an end or error on one side ends the other. */
function pipeBoth(sdk: TLSSocket, gateway: TLSSocket, lingerMs: number): void {
  for (const [one, other] of [
    [sdk, gateway],
    [gateway, sdk],
  ] as const) {
    one.on('error', () => one.destroy());
    // Pending data is still delivered.
    one.once('close', () => other.destroySoon());
    one.pipe(other);
  }
  // A gateway that vanished never closes, and dead connections would use up the limit of the relay.
  sdk.once('end', () => setTimeout(() => gateway.destroy(), lingerMs).unref());
}

export interface RelayCertificate {
  cert: string;
  key: string;
}

/*
 * X.509 by hand (RFC 5280, in DER): the library that the gateway uses costs 15 MB of memory, and this certificate never
 * varies.
 */

const SEQUENCE = 0x30;
const SET = 0x31;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OBJECT_IDENTIFIER = 0x06;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const GENERALIZED_TIME = 0x18;
const BOOLEAN_TRUE = Buffer.from([0x01, 0x01, 0xff]);

const ECDSA_WITH_SHA256 = oid('2a8648ce3d040302');
const COMMON_NAME = oid('550403');
const SUBJECT_ALT_NAME = oid('551d11');
const BASIC_CONSTRAINTS = oid('551d13');

/**
 * Creates a self-signed certificate for 127.0.0.1 that cannot sign others. The SDK (1.7.0) accepts it as its own CA.
 *
 * It is valid at any time: it lives in memory only, and a device without a battery-backed clock starts in 1970.
 */
export function makeRelayCertificate(): RelayCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8_STRING, Buffer.from('device-agent relay')))));
  const loopback = der(0x87, Buffer.from([127, 0, 0, 1]));
  const content = der(
    SEQUENCE,
    der(0xa0, der(INTEGER, Buffer.from([2]))), // version 3
    der(INTEGER, Buffer.concat([Buffer.from([0x40]), randomBytes(15)])),
    der(SEQUENCE, ECDSA_WITH_SHA256),
    name,
    der(SEQUENCE, der(UTC_TIME, Buffer.from('700101000000Z')), der(GENERALIZED_TIME, Buffer.from('99991231235959Z'))),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(
      0xa3,
      der(SEQUENCE, extension(BASIC_CONSTRAINTS, der(SEQUENCE)), extension(SUBJECT_ALT_NAME, der(SEQUENCE, loopback))),
    ),
  );
  const signature = Buffer.concat([Buffer.from([0]), sign('sha256', content, privateKey)]);
  const certificate = der(SEQUENCE, content, der(SEQUENCE, ECDSA_WITH_SHA256), der(BIT_STRING, signature));
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${certificate.toString('base64').replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}

function extension(id: Buffer, value: Buffer): Buffer {
  return der(SEQUENCE, id, BOOLEAN_TRUE, der(OCTET_STRING, value));
}

function oid(hex: string): Buffer {
  return der(OBJECT_IDENTIFIER, Buffer.from(hex, 'hex'));
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const { length } = body;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), body]);
  const size = length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}
