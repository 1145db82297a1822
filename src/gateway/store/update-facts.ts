import { z } from 'zod';
import type { Database } from './sql/database.ts';

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

/** The fact with how the last update of a gateway's program failed. */
const FAILED_UPDATE = 'gateway_update';

const FailedUpdate = z.object({
  /** `kept`: it was given up, and stays, as going back would lose data. */
  result: z.enum(['returned', 'kept']),
  from: z.string(),
  to: z.string(),
  reason: z.string().nullable(),
  /** Whether the version was given up: this machine does not install it again unless somebody names it. */
  isGivenUp: z.boolean().default(false),
  /** RFC 3339. */
  at: z.string(),
});

/** Null: none has failed. */
export function failedUpdate(database: Pick<Database, 'fact'>): z.output<typeof FailedUpdate> | null {
  return parseFact(FailedUpdate, database.fact(FAILED_UPDATE));
}

/** Only inside {@link Database.write}. */
export function noteFailedUpdate(database: Pick<Database, 'setFact'>, update: z.input<typeof FailedUpdate>): void {
  database.setFact(FAILED_UPDATE, JSON.stringify(update));
}
