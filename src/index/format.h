/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * format.h - what the index files hold, byte for byte, and the checks that make damage
 * visible.  No state, no I/O.  The essay in index.c says how the parts work together.
 *
 * Numbers are in the host's byte order: an index belongs to one machine, and the magic of a
 * machine of the other order reads as foreign.
 *
 * Checked word: 56 bits of payload under an 8-bit check that depends on the word's place.  Any
 * change of a single byte is seen, a random one in 255 of 256 cases; a word of zeros is never
 * valid, so that a lost sector is seen as such.  Slots, states, links and the few counters
 * kept in headers are checked words, and each is written with one aligned 8-byte store.
 */
#ifndef FOLDFS_INDEX_FORMAT_H
#define FOLDFS_INDEX_FORMAT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INDEX_FORMAT 2u

#define MAGIC_MANIFEST UINT64_C(0x31666e6d64666c66) /* "flfdmnf1" */
#define MAGIC_NAMES    UINT64_C(0x316d616e64666c66)
#define MAGIC_TABLE    UINT64_C(0x316c627464666c66)
#define MAGIC_DIRS     UINT64_C(0x3172696464666c66)

/* Every file begins with one page for its header, so that the rest is page-aligned. */
#define HEADER_BYTES 4096u

/* Odd 64-bit constant (the golden ratio) that spreads small differences. */
#define SPREAD UINT64_C(0x9e3779b97f4a7c15)

/* ---- checked words ---- */

#define PAYLOAD_BITS 56
#define PAYLOAD_MASK ((UINT64_C(1) << PAYLOAD_BITS) - 1)

/* Folds 56 bits to 8.  Linear over bits; the shifts were chosen by exhaustion so that no change
 * within one byte folds to nothing (test-index-format.c shows it) and few changes of two bits
 * do. */
static inline uint8_t word_fold(uint64_t payload)
{
    payload ^= payload << 8;
    payload ^= payload >> 12;
    payload ^= payload >> 15;
    payload ^= payload >> 21;
    return (uint8_t)payload;
}

/* The salt of place PLACE in the files of SEED; odd, so that a zero word is never valid. */
static inline uint8_t word_salt(uint64_t seed, uint64_t place)
{
    return (uint8_t)((((place ^ seed) * SPREAD) >> 56) | 1);
}

static inline uint64_t word_make(uint64_t payload, uint8_t salt)
{
    return payload | (uint64_t)(uint8_t)(word_fold(payload) ^ salt) << PAYLOAD_BITS;
}

static inline bool word_valid(uint64_t word, uint8_t salt)
{
    return (uint8_t)(word_fold(word & PAYLOAD_MASK) ^ (word >> PAYLOAD_BITS)) == salt;
}

/* ---- files ---- */

struct file_header {
    uint64_t magic;
    uint32_t format;
    uint32_t fold_version;
    uint8_t id[16]; /* the same in every file of one generation */
    uint64_t generation;
    uint64_t capacity; /* names: bytes of address space; table: buckets; dirs: entries */
    uint64_t reserved;
    uint64_t check; /* XXH3 of what stands before */
    /* From here on what changes: checked words, place = their index. */
    _Atomic uint64_t counters[8];
};
static_assert(sizeof(struct file_header) == 128, "file header");
static_assert(sizeof(struct file_header) <= HEADER_BYTES, "file header fits its page");

/* Which counters[] hold what. */
enum {
    COUNTER_TAIL,     /* names: bytes in use at the last checkpoint */
    COUNTER_USED,     /* table: slots in use */
    COUNTER_VARIANTS, /* table: records that a chain leads to */
    COUNTER_GARBAGE,  /* table: bytes of records that nothing leads to */
    COUNTER_COMPLETE, /* dirs: complete entries */
    COUNTER_RECORDS,  /* table: records that nothing leads to */
    COUNTER_SYNCED,   /* names, table: number of the last checkpoint that synced them */
};

/* Written whole to a temporary file and renamed. */
struct manifest {
    uint64_t magic;
    uint32_t format;
    uint32_t fold_version;
    uint8_t id[16];
    uint64_t seed;
    uint64_t generation;
    uint64_t reserved;    /* numbers up to this one may have been given out */
    uint64_t crash;       /* numbers below were given out in other boots */
    uint64_t group_floor; /* groups made before this number are not trusted */
    uint64_t clean;       /* 1: closed in order */
    char boot_id[40];
    uint64_t check;
};
static_assert(sizeof(struct manifest) == 128, "manifest");

/* ---- table ---- */

#define SLOTS_PER_BUCKET 8u
struct bucket {
    _Atomic uint64_t slots[SLOTS_PER_BUCKET];
};
static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

/* Slot: {offset 40 (in units), tag 16, check 8}.  Offset 0 with the tag of its place: empty. */
#define OFFSET_BITS 40
#define OFFSET_MASK ((UINT64_C(1) << OFFSET_BITS) - 1)
#define UNIT        8u /* records start at multiples of this many bytes */

static inline uint64_t slot_offset(uint64_t slot)
{
    return (slot & OFFSET_MASK) * UNIT;
}

static inline uint16_t slot_tag(uint64_t slot)
{
    return (uint16_t)(slot >> OFFSET_BITS);
}

static inline uint64_t slot_make(uint64_t offset, uint16_t tag, uint8_t salt)
{
    return word_make(offset / UNIT | (uint64_t)tag << OFFSET_BITS, salt);
}

static inline uint64_t slot_empty(uint64_t bucket, unsigned i, uint8_t salt)
{
    uint16_t tag = (uint16_t)(((bucket * SLOTS_PER_BUCKET + i + 1) * SPREAD) >> 40);

    return slot_make(0, tag, salt);
}

/* ---- records ---- */

/* STATE: {number 44, second check 11, removed 1, check 8}.  The number is that of the scan
 * which saw the entry, or the newest number at the moment when it was added or removed. Nothing
 * else tells of damage to it, as a slot's tag and a link's target do: hence the second check.
 * 50,000 numbers a second last eleven years. LINK: {offset 40, static check 16, check 8}: of a
 * base record, the anchor of its variants. META: {key 48, length 8, kind 8}; kind = type and
 * number of levels. Then LEVELS links (static part 0), then the name, padded with zeros to a
 * unit; the name of an anchor is the folded one. */
struct record {
    _Atomic uint64_t state;
    _Atomic uint64_t link;
    uint64_t meta;
};
static_assert(sizeof(struct record) == 24, "record header");

#define NUMBER_BITS   44
#define NUMBER_MASK   ((UINT64_C(1) << NUMBER_BITS) - 1)
#define STATE_REMOVED (UINT64_C(1) << 55)

/* The second check of {number, removed} in the record at OFFSET of SEED's files, in its place.
 */
static inline uint64_t state_check(uint64_t seed, uint64_t offset, uint64_t number_and_removed)
{
    uint64_t spread = (number_and_removed ^ (offset + seed) * SPREAD) * SPREAD;

    return (spread ^ spread >> 29) * SPREAD >> 53 << NUMBER_BITS;
}

#define KEY_BITS 48
#define KEY_MASK ((UINT64_C(1) << KEY_BITS) - 1)

#define RECORD_NAME   1u
#define RECORD_ANCHOR 2u
/* Levels of the skip list of variants: one in four nodes reaches the next level, so ten serve a
 * million variants of one name. */
#define LEVELS_MAX 10u

static inline uint64_t meta_make(uint64_t key, size_t len, unsigned type, unsigned levels)
{
    return key | (uint64_t)len << KEY_BITS | (uint64_t)(type << 4 | levels) << 56;
}

static inline uint64_t meta_key(uint64_t meta)
{
    return meta & KEY_MASK;
}

static inline uint8_t meta_len(uint64_t meta)
{
    return (uint8_t)(meta >> KEY_BITS);
}

static inline unsigned meta_type(uint64_t meta)
{
    return (unsigned)(meta >> 60);
}

static inline unsigned meta_levels(uint64_t meta)
{
    return (unsigned)(meta >> 56) & 0xf;
}

static inline uint64_t record_bytes(size_t len, unsigned levels)
{
    return sizeof(struct record) + 8 * levels + (len + UNIT - 1) / UNIT * UNIT;
}

/* The largest record: a name of 255 bytes in a node of all levels. */
#define RECORD_MAX (24u + 8u * LEVELS_MAX + 256u)
static_assert(RECORD_MAX % UNIT == 0, "records are whole units");

/* ---- dirs ---- */

#define ENTRY_FREE    0u /* never used: a probe ends here */
#define ENTRY_DELETED 1u
#define ENTRY_STALE   2u /* key and scan number are known, the stamp proves nothing */
#define ENTRY_PROVEN  3u

/* Removals with a number in [from, to) may have been undone by a power loss.  The oldest range
 * is first, empty ones (from == to) are last.  A range comes with each boot in which the
 * directory was changed and not scanned; when there are too many the oldest two become one,
 * with what lies between. */
#define DOUBTS_MAX 3u
struct doubts {
    struct {
        uint64_t from, to;
    } ranges[DOUBTS_MAX];
};

struct dirs_entry {
    uint8_t id[16]; /* XXH3-128 of the identity, seeded */
    uint64_t key;
    uint64_t scan;
    uint64_t epoch; /* removals with smaller numbers are covered by the stamp */
    struct doubts doubts;
    int64_t stamp[4];
    uint64_t kind;
    uint64_t check; /* XXH3 of what stands before, seeded with the place */
};
static_assert(sizeof(struct dirs_entry) == 136, "dirs entry");

#endif
