import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import { parseJoinCode } from '../../management/join-code.ts';
import { ENROLMENTS_PATH, Enrolment, LEAVE_PATH } from '../../management/resources/enrolment.ts';
import { postVerified } from './gateway-calls.ts';
import { type Installation, readInstallation } from './installation.ts';

/**
 * Fetches the present authtoken of a device that has joined. It keeps its names, which its settings have.
 *
 * @param file of its installation
 * @returns the authtoken, and where it is for (`host:port`); null when there is none
 * @throws {OperatorError} when the gateway refuses the device, or the file is damaged; any other error when another
 *   attempt can succeed
 */
export async function fetchAuthtoken(
  file: string,
  proxies: ProxyRules,
): Promise<{ name: string; authtoken: string; sessionAddress: string } | null> {
  const installation = await readInstallation(file);
  const code = installation?.device ? parseJoinCode(installation.code) : null;
  if (!installation || !code) return null;
  const body = { install_key: installation.install_key, keep_name: true };
  const { json } = await postVerified(code, ENROLMENTS_PATH, body, proxies);
  const { name, authtoken, session_address } = Enrolment.parse(json);
  return authtoken === null ? null : { name, authtoken, sessionAddress: session_address };
}

/**
 * Ends the enrolment of a device: the gateway forgets it with its authtoken.
 *
 * @throws {EnrolmentRefused} when the gateway refuses, as for a revoked device; any other error when it is unreachable
 */
export async function leaveSite({ code: text, install_key }: Installation, proxies: ProxyRules): Promise<void> {
  const code = parseJoinCode(text);
  if (code !== null) await postVerified(code, LEAVE_PATH, { install_key }, proxies);
}
