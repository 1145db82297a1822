/** Which end of a connection this is. */
export type Role = 'agent' | 'gateway';

/** Agents open streams with odd ids from 3 on, gateways with even ones from 2 on. */
export const FIRST_ID: Readonly<Record<Role, number>> = { agent: 3, gateway: 2 };

/** Whether the gateway opened the stream. */
export function isGateways(streamId: number): boolean {
  return streamId % 2 === 0;
}
