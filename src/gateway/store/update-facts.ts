import { z } from 'zod';

/** The fact with the gateway that updates itself, of those that share a database: one at a time does. */
export const UPDATE_TURN: string = 'gateway_update_turn';
/** The fact with the version that a gateway has given up. */
export const UPDATE_GIVEN_UP: string = 'gateway_update_given_up';

const AtGateway = { node: z.string(), address: z.string(), version: z.string(), at: z.string() };

export const UpdateTurn = z.object({
  ...AtGateway,
  /** `preparing`: nothing on the gateway has changed yet, and the turn ends soon if it stays so; `trying`: it ends with the trial. */
  state: z.enum(['preparing', 'trying']),
});
export type UpdateTurn = z.output<typeof UpdateTurn>;

export const GivenUpUpdate = z.object({ ...AtGateway, reason: z.string() });
export type GivenUpUpdate = z.output<typeof GivenUpUpdate>;

/** @returns null when it is missing, or written by a newer version in another form */
export function parseFact<T>(schema: z.ZodType<T>, text: string | null | undefined): T | null {
  if (text === null || text === undefined) return null;
  try {
    return schema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}
