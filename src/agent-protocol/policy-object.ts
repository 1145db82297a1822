import { z } from 'zod';

const Rules = z
  .array(
    z.object({
      Name: z.string().nullish(),
      Expressions: z.array(z.string()).nullish(),
      Actions: z.array(z.object({ Type: z.string(), Config: z.string().nullish() })).nullish(),
    }),
  )
  .nullish();

const PolicyObject = z.strictObject({ Inbound: Rules, Outbound: Rules });

/**
 * The text of a traffic policy that an SDK sent as an object: rules with capitalised members, and the configuration of an
 * action as JSON in base64 (recorded from ngrok's Python SDK 1.3).
 *
 * @returns the policy in JSON; the value itself when it is no such object
 */
export function policyOfObject(value: object): unknown {
  const parsed = PolicyObject.safeParse(value);
  if (!parsed.success) return value;
  try {
    return JSON.stringify({ inbound: rules(parsed.data.Inbound), outbound: rules(parsed.data.Outbound) });
  } catch {
    // A configuration that is not JSON: the message is refused as one with a wrong type.
    return value;
  }
}

function rules(sent: z.output<typeof Rules>): object[] {
  return (sent ?? []).map(({ Name, Expressions, Actions }) => ({
    ...(Name && { name: Name }),
    expressions: Expressions ?? [],
    actions: (Actions ?? []).map(({ Type, Config }) => ({
      type: Type,
      ...(Config && { config: JSON.parse(Buffer.from(Config, 'base64').toString()) }),
    })),
  }));
}
