import type { LookupAddress } from 'node:dns';
import type { LookupFunction, Socket } from 'node:net';
import { type Dial, dialThrough, directDial } from '../../lib/network/dial.ts';
import { addressesOf } from '../../lib/network/loopback-names.ts';
import { type ProxyRules, type ProxyServer, proxyFor } from '../../lib/network/proxy-rules.ts';
import { pinnedProtocols } from '../../lib/tls/pinned-chain.ts';
import { pinnedPem, type TrustedCas, trustedPem } from '../../lib/tls/tls-options.ts';
import { PORTAL_ADVICE } from '../../lib/tls/tls-probe.ts';
import { type GatewayProbe, type ProbeTrust, probeGateway } from './gateway-probe.ts';
import { CLOUD_ADDRESS, type GatewayAddress, parseGatewayAddress } from './gateway-socket.ts';

type Answer = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void;

/**
 * getaddrinfo cannot be cancelled, waits 5 s per try for a silent name server, and has two threads of libuv's pool. So at
 * most two run at a time and all other callers wait for the newer one. A queue of stale look-ups would delay the first
 * one that can be answered.
 */
const MAX_RUNNING = 2;

/** Creates a `lookup` for node:net whose concurrent callers share look-ups; all must ask for the same name. */
function sharedLookup(inOrder: (addresses: LookupAddress[]) => LookupAddress[]): LookupFunction {
  const running: Answer[][] = [];
  const ask = (host: string, waiting: Answer[]) => {
    running.push(waiting);
    const end = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => {
      running.splice(running.indexOf(waiting), 1);
      const ordered = inOrder(addresses);
      for (const answer of waiting) answer(error, ordered);
    };
    addressesOf(host).then(
      (addresses) => end(null, addresses),
      (error: NodeJS.ErrnoException) => end(error, []),
    );
  };
  return (host, options, callback) => {
    const answer: Answer = (error, addresses) => {
      const [first] = addresses ?? [];
      if (options.all) callback(error, addresses ?? []);
      else callback(error, first?.address ?? '', first?.family);
    };
    const newest = running.at(-1);
    if (running.length < MAX_RUNNING || !newest) ask(host, [answer]);
    else newest.push(answer);
  };
}

export interface GatewayRoute {
  readonly address: GatewayAddress;
  /** Null: connections are direct. */
  readonly proxy: ProxyServer | null;
  readonly dial: Dial;
  /** PEM of the CAs that verify the gateway's certificate outside the SDK. */
  readonly ca: string | Uint8Array;
  /** With which the gateway is asked for a chain that these accept. */
  readonly protocols: string[];
  readonly probe: GatewayProbe;
  /** The same for a client that asks for no chain, and trusts either the CAs of the system or those of a file, as the SDK. */
  readonly plainProbe: GatewayProbe;
  /** Whether the gateway's name has led to several addresses: another one may answer when one does not. */
  hasSeveral(): boolean;
}

const OWN_CA = "set NGROK_CA_CERT to a copy of the gateway's ca.pem; if it is one, something intercepts TLS";

/**
 * @param authorities CAs of the gateway; null: that of ngrok's cloud
 * @param meter counts attempts to connect, and connections
 */
export function routeTo(
  serverAddr: string | null,
  proxies: ProxyRules,
  authorities: TrustedCas | null,
  meter: { dialled(): void; meter(socket: Socket): void } | null = null,
): GatewayRoute {
  const address = parseGatewayAddress(serverAddr ?? CLOUD_ADDRESS);
  const proxy = proxyFor(proxies, 'https', address);
  let several = false;
  /** The next connection tries the address first that a probe has just reached. */
  let reached: string | null = null;
  const lookup = sharedLookup((addresses) => {
    several ||= addresses.filter(({ family }) => family === addresses[0]?.family).length > 1;
    const first = addresses.filter(({ address }) => address === reached);
    reached = null;
    return [...first, ...addresses.filter((each) => !first.includes(each))];
  });
  const connect = proxy ? dialThrough(proxy) : directDial(lookup);
  const dial: Dial = async (destination, signal) => {
    meter?.dialled();
    const socket = await connect(destination, signal);
    meter?.meter(socket);
    return socket;
  };
  const adviceOnCa = serverAddr === null ? PORTAL_ADVICE : OWN_CA;
  // Read each time: the agent may have learned another CA since.
  const pem = () => (authorities ? trustedPem(authorities) : CLOUD_CA);
  const plainPem = () => (authorities && 'host' in authorities ? authorities.host : pem());
  const probeWith = async (trust: Pick<ProbeTrust, 'ca' | 'protocols' | 'onConnected'>, signal: AbortSignal) => {
    const answer = await probeGateway(address, dial, { ...trust, adviceOnCa }, signal);
    reached = answer.peer;
    return answer;
  };
  return {
    ...{ address, proxy, dial },
    get ca() {
      return pem();
    },
    get protocols() {
      return pinnedProtocols(authorities && pinnedPem(authorities));
    },
    probe: (signal, onConnected) =>
      probeWith({ ca: pem(), protocols: pinnedProtocols(authorities && pinnedPem(authorities)), onConnected }, signal),
    plainProbe: (signal, onConnected) => probeWith({ ca: plainPem(), onConnected }, signal),
    hasSeveral: () => several,
  };
}

/**
 * The CA of ngrok's agent ingress, the only one that the SDK trusts there: the PEM in the binary of @ngrok/ngrok 1.7.0.
 */
export const CLOUD_CA = `-----BEGIN CERTIFICATE-----
MIID4TCCAsmgAwIBAgIUZqF2AkB17pISojTndgc2U5BDt74wDQYJKoZIhvcNAQEL
BQAwbzEQMA4GA1UEAwwHUm9vdCBDQTENMAsGA1UECwwEcHJvZDESMBAGA1UECgwJ
bmdyb2sgSW5jMRYwFAYDVQQHDA1TYW4gRnJhbmNpc2NvMRMwEQYDVQQIDApDYWxp
Zm9ybmlhMQswCQYDVQQGEwJVUzAgFw0yMjA4MzExNTE3MjFaGA80NzYwMDcyODE1
MTcyMVowbzEQMA4GA1UEAwwHUm9vdCBDQTENMAsGA1UECwwEcHJvZDESMBAGA1UE
CgwJbmdyb2sgSW5jMRYwFAYDVQQHDA1TYW4gRnJhbmNpc2NvMRMwEQYDVQQIDApD
YWxpZm9ybmlhMQswCQYDVQQGEwJVUzCCASIwDQYJKoZIhvcNAQEBBQADggEPADCC
AQoCggEBAMPkZpOguChG8QXfp1eCu21wipptiWO9U6F2DRf5ln8XXAAokZyfo4IZ
795G+KdkEbq4KxSXHehhKQFDwlFnzIkZsDu6PHabXsutAmNLmoRQzsETTdh3gMEJ
JiCW+mtqmbWPH22GXnUXxe5R6dWbkXqrITy6nFpZWdFbKmo9/1VoyWdIgcXujq2D
aNCWm2BoQ9seCebc5+6gF2syXzvoKVZ4qg6O1anCl1K0ZH/2mDXu/22O2U4Tr/j7
6Da1Y7TWZYDU2dIz+tyfTOMrlaxXyxxmXewzOpYjBiHisfPpz7AtrTlAzaEVVhRk
c86vC2h42zqH8Jv0fjJdfMkVXe3eegECAwEAAaNzMHEwHQYDVR0OBBYEFNxeUxPI
M8G7cX0DhFc81pLD4W+HMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgEG
MC8GA1UdHwQoMCYwJKAioCCGHmh0dHA6Ly9jcmwubmdyb2suY29tL25ncm9rLmNy
bDANBgkqhkiG9w0BAQsFAAOCAQEAChXl+eYIQbn0OOHLuCBvXxDKHqccJLPaxJR1
LeWj8HjWbyLXnS405YNn84NFirpYzemeYSex+os92kjjLhBXEOIEpAE9JebDk7N5
X4xSOkS7vrOepX4JFNhqVdxut7pqEmuj1Xf7KhHtFquFM5fhLJHnWEJGWOTRbRVp
KWqZI/HzaltSbgiikf3S2qu6oZHph/BpueCqLKwvJziPQGE+cYdYQzRKPJZbuorj
+CnYUXd7kHC3RZzs6egVIvUYy+bGgv1CeeAm9EccL2RmPkSzThOo6oXBLR50Zlke
1x7y/5om6zp9vGTW4PWVAW/VWw1x4zxtSQ7NrP1Ldh7Xmnb7sw==
-----END CERTIFICATE-----
`;
