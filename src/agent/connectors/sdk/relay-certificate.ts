import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';

export interface RelayCertificate {
  cert: string;
  key: string;
}

/*
 * X.509 by hand (RFC 5280, in DER): the library that the gateway uses costs 15 MB of memory, and this certificate never
 * varies.
 */

const SEQUENCE = 0x30;
const SET = 0x31;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OBJECT_IDENTIFIER = 0x06;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const GENERALIZED_TIME = 0x18;
const BOOLEAN_TRUE = Buffer.from([0x01, 0x01, 0xff]);

const ECDSA_WITH_SHA256 = oid('2a8648ce3d040302');
const COMMON_NAME = oid('550403');
const SUBJECT_ALT_NAME = oid('551d11');
const BASIC_CONSTRAINTS = oid('551d13');

/**
 * Creates a self-signed certificate for 127.0.0.1 that cannot sign others. The SDK (1.7.0) accepts it as its own CA.
 *
 * It is valid at any time: it lives in memory only, and a device without a battery-backed clock starts in 1970.
 */
export function makeRelayCertificate(): RelayCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8_STRING, Buffer.from('device-agent relay')))));
  const loopback = der(0x87, Buffer.from([127, 0, 0, 1]));
  const content = der(
    SEQUENCE,
    der(0xa0, der(INTEGER, Buffer.from([2]))), // version 3
    der(INTEGER, Buffer.concat([Buffer.from([0x40]), randomBytes(15)])),
    der(SEQUENCE, ECDSA_WITH_SHA256),
    name,
    der(SEQUENCE, der(UTC_TIME, Buffer.from('700101000000Z')), der(GENERALIZED_TIME, Buffer.from('99991231235959Z'))),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(
      0xa3,
      der(SEQUENCE, extension(BASIC_CONSTRAINTS, der(SEQUENCE)), extension(SUBJECT_ALT_NAME, der(SEQUENCE, loopback))),
    ),
  );
  const signature = Buffer.concat([Buffer.from([0]), sign('sha256', content, privateKey)]);
  const certificate = der(SEQUENCE, content, der(SEQUENCE, ECDSA_WITH_SHA256), der(BIT_STRING, signature));
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${certificate.toString('base64').replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}

function extension(id: Buffer, value: Buffer): Buffer {
  return der(SEQUENCE, id, BOOLEAN_TRUE, der(OCTET_STRING, value));
}

function oid(hex: string): Buffer {
  return der(OBJECT_IDENTIFIER, Buffer.from(hex, 'hex'));
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const { length } = body;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), body]);
  const size = length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}
