import { hasErrno, OperatorError } from '../../lib/errors.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import type { TrustedCas } from '../../lib/network/trusted-cas.ts';
import { parseJoinCode } from '../../management/join-code.ts';
import {
  AGENT_SHARE_LINKS_LIST_PATH,
  AGENT_SHARE_LINKS_PATH,
  AGENT_SHARE_LINKS_REVOKE_PATH,
  AgentShareLinks,
  ShareLink,
  type ShareLinkCreate,
} from '../../management/resources/share-link.ts';
import { fetchAuthtoken, post, postVerified } from './gateway-calls.ts';
import { readInstallation } from './installation.ts';

/** How an agent reaches the management API of its gateway. */
export interface ApiAccess {
  authtoken: () => string;
  /** Where its sessions connect to, `host:port`. */
  serverAddr: string | null;
  authorities: TrustedCas | null;
  proxies: ProxyRules;
  /** File of the enrolment of a device that has joined; it may be missing. Null: the gateway is embedded. */
  enrolment: string | null;
  /** Of an embedded gateway. */
  apiUrl: string | null;
}

type Post = (path: string, body: object) => Promise<unknown>;

/**
 * The share links to the endpoints that the agent's authtoken has online. Its operations throw {@link EnrolmentRefused} when
 * the gateway refuses, and any other error when another attempt can succeed.
 *
 * @throws {OperatorError} when it is not known where the API is
 */
export async function gatewayShareLinks(access: ApiAccess) {
  const send = await postOf(access);
  // After the place is known: the authtoken goes to no other gateway.
  const authtoken = access.authtoken();
  return {
    create: async (sent: ShareLinkCreate) =>
      ShareLink.parse(await send(AGENT_SHARE_LINKS_PATH, { ...sent, authtoken })),
    list: async () => AgentShareLinks.parse(await send(AGENT_SHARE_LINKS_LIST_PATH, { authtoken })).share_links,
    revoke: async (id: string) => {
      await send(AGENT_SHARE_LINKS_REVOKE_PATH, { id, authtoken });
    },
  };
}

async function postOf({ serverAddr, authorities, proxies, enrolment, apiUrl }: ApiAccess): Promise<Post> {
  const installation = enrolment === null ? null : await readInstallation(enrolment);
  const code = installation?.device ? parseJoinCode(installation.code) : null;
  if (enrolment !== null && code !== null) {
    const joined = await fetchAuthtoken(enrolment, proxies);
    // The settings may name another gateway by now.
    if (joined?.sessionAddress === serverAddr) {
      return async (path, body) => (await postVerified(code, path, body, proxies)).json;
    }
  }
  const ca = authorities && ('pem' in authorities ? authorities.pem : authorities.host).toString();
  const trust = { ...(ca !== null && { ca }), proxies };
  if (apiUrl !== null) return (path, body) => post(apiUrl, path, body, trust);
  const { origin, address } = apiBeside(serverAddr ?? '');
  return (path, body) =>
    post(origin, path, body, { ...trust, address }).catch((error: unknown) => {
      // A port of the gateway for agents alone.
      throw hasErrno(error, 'ERR_TLS_CERT_ALTNAME_INVALID') ? unknownApi(serverAddr) : error;
    });
}

/**
 * The API of a gateway has a name beside the one for sessions, at the same address. It is called there: under some domains, the
 * other name is somebody else's.
 */
function apiBeside(serverAddr: string) {
  if (!serverAddr.startsWith('connect.')) throw unknownApi(serverAddr);
  const { hostname, port } = new URL(`https://${serverAddr}`);
  const address = { host: hostname, port: Number(port) || 443 };
  return { origin: new URL(`https://${serverAddr.replace('connect.', 'api.')}`).origin, address };
}

function unknownApi(serverAddr: string | null): OperatorError {
  return new OperatorError(
    `unknown management API of the gateway at ${serverAddr}: make the link there, with "device-agent gateway share"`,
  );
}
