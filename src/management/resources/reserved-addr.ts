import { z } from 'zod';
import { ownerId } from './credential.ts';
import { region } from './reserved-domain.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, NO_REGION, orNull, UNKNOWN_ID } from './resource.ts';

export const ReservedAddrCreate = body({
  ...annotations(504, 505),
  region: region(500),
  owner_id: ownerId
    .optional()
    .describe(
      "A bot user: only its authtokens can bind the address. It cannot be changed later. Default: all that their rules allow. Not in ngrok's API.",
    ),
});
export type ReservedAddrCreate = z.input<typeof ReservedAddrCreate>;

export const ReservedAddrUpdate = body(annotations(504, 505));
export type ReservedAddrUpdate = z.input<typeof ReservedAddrUpdate>;

export const ReservedAddr = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    addr: z.string().describe('`host:port`, which the gateway has chosen.'),
    region: z.string().describe(NO_REGION),
    owner_id: orNull(z.string()).describe('The bot user whose authtokens alone can bind the address; null: any.'),
  })
  .describe('A TCP address that agents get only by asking for it.');
export type ReservedAddr = z.output<typeof ReservedAddr>;

export const reservedAddrs = {
  name: 'reserved address',
  path: '/reserved_addrs',
  idPrefix: 'ra_',
  listKey: 'reserved_addrs',
  unknownIdCode: UNKNOWN_ID,
  create: ReservedAddrCreate,
  update: ReservedAddrUpdate,
  answer: ReservedAddr,
};
