import { ownCommand } from '../lib/process/own-command.ts';

/** A domain that a tunnel or the agent's own API needs to bind. */
export interface Name {
  domain: string;
  protocol: string;
  /** Whether it is AGENT_DOMAIN. */
  isOwn?: boolean;
}

/** Why something failed: the gateway's or the agent's code, if there is one, and a message. */
type Failure = { code: string | null; message: string } | null;

const NEW_AUTHTOKEN = `set NGROK_AUTHTOKEN to a valid one: create it with device-agent setup --rotate, or in the ngrok dashboard; on a device that has joined a site, run ${ownCommand('join')}`;
/** For a device that the gateway has revoked or deleted. */
const JOIN_AGAIN = `to let this device join again: on the gateway, delete it if it is listed (device-agent gateway devices) and make a code (device-agent gateway invite); then run ${ownCommand('join -')} here`;
export const CHANGE_UPSTREAM = `change it with ${ownCommand('tunnels change <tunnel> --forwards-to <upstream>')}`;
export const CHANGE_TLS = `change how the agent connects: ${ownCommand('tunnels change <tunnel> --upstream-tls-…')}`;
export const RESTART_UPSTREAM = 'restart the upstream: it does not close connections that clients have left';
/** For one that answers, but not as the tunnel needs it. */
export const CORRECT_UPSTREAM = `correct the upstream, or forward to another one: ${CHANGE_UPSTREAM}`;
export const START_UPSTREAM = `start the upstream, or forward to another one: ${CHANGE_UPSTREAM}`;

/** The authtoken's ACL or reservations do not allow a domain or an address. */
const DENIED: readonly string[] = ['ERR_NGROK_308', 'ERR_NGROK_316', 'ERR_NGROK_356'];
/** Of the gateway, and of an account at ngrok. */
const SESSION_LIMITS: readonly string[] = ['ERR_NGROK_348', 'ERR_NGROK_108'];
const ONLINE_ELSEWHERE = 'ERR_NGROK_334';

/** Completes `… is offline`: the reason, if it is known. */
export function because(error: Failure): string {
  return error === null ? '' : `: ${[error.code, error.message].filter(Boolean).join(' ')}`;
}

/** What to do when the gateway gives the agent no session, by error code; null when the message contains the advice. */
export function sessionAdvice(error: Failure): string | null {
  if (!error?.code)
    return `check network, name server and address with: ${ownCommand('doctor')}; the agent keeps retrying`;
  if (error.code.startsWith('ERR_GATEWAY_')) return JOIN_AGAIN;
  return SESSION_LIMITS.includes(error.code) ? null : NEW_AUTHTOKEN;
}

/** What to do when the gateway or the agent refuses a domain, by error code; null when the message contains the advice. */
export function endpointAdvice(code: string, { domain, protocol, isOwn }: Name): string | null {
  if (code.startsWith('ERR_AGENT_UPSTREAM_')) return upstreamAdvice(code);
  if (code === ONLINE_ELSEWHERE && isOwn) {
    return 'another agent has the same AGENT_DOMAIN: set a different one on each device, such as agent-2.site-a.example.com';
  }
  if (code === ONLINE_ELSEWHERE) return 'another agent uses this domain: stop it there, or delete the tunnel here';
  if (code === 'ERR_NGROK_319') return `reserve ${domain} or a wildcard above it, for example with device-agent setup`;
  if (code === 'ERR_NGROK_332')
    return 'the gateway does not support this protocol: delete the tunnel, or use another gateway';
  if (!DENIED.includes(code)) return null;
  if (protocol === 'tcp')
    return 'the gateway has to allow ports: new devices get them with device-agent gateway invite --tcp 20000-20099; for this one, add an ACL rule to its authtoken, such as bind:tcp.gateway.example.com:20000';
  return `add an ACL rule to the authtoken, such as bind:${domain}, or use an allowed domain`;
}

/** What to do about an upstream that the agent rejects, by error code. */
export function upstreamAdvice(code: string | null): string {
  if (code === 'ERR_AGENT_UPSTREAM_UNKNOWN')
    return `check the name and the name server, or forward to another one: ${CHANGE_UPSTREAM}`;
  return `change AGENT_ALLOW_UPSTREAMS, or forward to another one: ${CHANGE_UPSTREAM}`;
}
