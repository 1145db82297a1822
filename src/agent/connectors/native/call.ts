import type { ZodType } from 'zod';
import type { Connection } from '../../../agent-protocol/connection.ts';
import { streamPrefix } from '../../../agent-protocol/messages.ts';
import { RpcCall } from '../../../agent-protocol/rpc.ts';

/** Sends a request; resolves to the gateway's answer. */
export async function call<T>(connection: Connection, type: number, body: object, schema: ZodType<T>): Promise<T> {
  const channel = connection.channel();
  channel.write(Buffer.concat([streamPrefix(type), Buffer.from(JSON.stringify(body))]));
  const answer = new Promise<unknown>((resolve, reject) => {
    channel.receiver = new RpcCall(channel, { resolve, reject });
  });
  connection.open(channel);
  const parsed = schema.safeParse(await answer);
  if (!parsed.success) throw new Error('malformed answer of the gateway', { cause: parsed.error });
  return parsed.data;
}
