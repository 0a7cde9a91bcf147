"""Names that columns of labelled files usually have. All in lower case; the first that is there is taken."""

# Names of public data sets and of spreadsheets in the languages most asked for (English, German, Chinese).
PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("s1", "s2"),
    ("query", "title"),
    ("question", "sentence"),
    ("satz1", "satz2"),
    ("句子1", "句子2"),
)
TEXTS = (
    "text",
    "sentence",
    "text_a",
    "review",
    "comment",
    "content",
    "body",
    "document",
    "tweet",
    "message",
    "utterance",
    "question",
    "title",
    "satz",
    "kommentar",
    "rezension",
    "nachricht",
    "bewertungstext",
    "文本",
    "句子",
    "内容",
    "评论",
    "标题",
)
LABELS = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "categories",
    "target",
    "sentiment",
    "score",
    "rating",
    "stars",
    "is_duplicate",
    "quality",
    "intent",
    "emotion",
    "topic",
    "tag",
    "tags",
    "y",
    "klasse",
    "kategorie",
    "bewertung",
    "stimmung",
    "标签",
    "类别",
    "情感",
    "分数",
)
KEYS = ("index", "idx", "id", "guid", "key")
WORDS = ("tokens", "words", "token", "word")
TAGS = ("ner_tags", "tags", "labels", "ner", "pos_tags", "chunk_tags", "label", "tag")
QUESTIONS = ("question", "query", "问题")
CONTEXTS = ("context", "passage", "article", "paragraph", "document", "text", "文章", "段落")
ANSWERS = ("answers", "answer", "答案")
CHOICE_CONTEXTS = ("sent1", "context", "article", "passage", "paragraph", "document")
CHOICE_QUESTIONS = ("sent2", "question", "query", "startphrase")
CHOICE_LISTS = ("options", "choices", "choice", "endings")
RIGHT_CHOICES = ("label", "answer", "answers", "answerkey", "correct", "gold")
_SETS = (TEXTS, LABELS, KEYS, WORDS, TAGS, QUESTIONS, CONTEXTS, ANSWERS)
_CHOICE_SETS = (CHOICE_CONTEXTS, CHOICE_QUESTIONS, CHOICE_LISTS, RIGHT_CHOICES)
KNOWN_NAMES = frozenset(name for names in (*PAIRS, *_SETS, *_CHOICE_SETS) for name in names)
